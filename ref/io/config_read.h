/* What the steps of reading one config.json share (config.c, config_router.c, config_layers.c).
 * Private to io. */
#ifndef MOEREF_CONFIG_READ_H
#define MOEREF_CONFIG_READ_H

#include "config.h"
#include "config_table.h"
#include "json_value.h"

struct config_reading {
    const json_t *json; /* the object that describes the text model */
    const char *path;
    const char *prefix; /* where json lies in the file: "" or "text_config." ... */
    const struct config_row *row;
    struct mr_config *out;
    struct mr_error *err;
    char named[4][96]; /* what mr_config_named gave */
    unsigned next_named;
};

#define TRY(call)                                     \
    do {                                              \
        enum mr_status try_status_ = (call);          \
        if (try_status_ != MR_OK) return try_status_; \
    } while (0)

/* The key as a message names it, with the prefix. Good until four more were asked for. */
const char *mr_config_named(struct config_reading *r, const char *key);
/* The value of a key, or NULL. */
const json_t *mr_config_get(const struct config_reading *r, const char *key);
/* Records where a field came from. key NULL: no key says it. format has one %s, for text. */
void mr_config_from(struct config_reading *r, const char *field, const char *key,
                    const char *format, const char *text) __attribute__((format(printf, 4, 0)));

#define FROM_KEY "%s", ""
#define FROM_DEFAULT(r) "default of %s", (r)->row->class_name
#define FROM_CLASS(r) "no key: fixed by %s", (r)->row->class_name

/* One integer figure: its key, or the class default, or a message that names the key. */
enum mr_status mr_config_int(struct config_reading *r, const char *field,
                             const struct config_int *from, int least, int *out);

enum mr_status mr_config_read_router(struct config_reading *r); /* config_router.c */
enum mr_status mr_config_read_layers(struct config_reading *r); /* config_layers.c, after it */

#endif
