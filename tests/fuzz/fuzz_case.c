/* libFuzzer: any bytes are refused with a message, or give a case whose layers can be asked for.
 * Its files lie in a folder that does not exist, so what it reads is what the bytes say: inline
 * numbers. Generated layers are not made here: their sizes are legal and large. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/io/case.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned char sink;

static void touch(struct mr_tensor t)
{
    const unsigned char *bytes = t.data;
    if (bytes && t.bytes) sink = (unsigned char)(bytes[0] ^ bytes[t.bytes - 1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_case *c;
    struct mr_error err = {""};
    char *text = malloc(size ? size : 1); /* of exactly size, so that ASan guards its end */
    if (!text) return 0;
    if (size) memcpy(text, data, size);
    enum mr_status status = mr_case_parse(text, size, "/nonexistent/fuzz.json", NULL, &c, &err);
    free(text);
    if (status != MR_OK ? c || !*err.text : !c) abort();
    if (!c) return 0;
    if (mr_router_check(mr_case_router(c), "fuzz", &err) != MR_OK) abort();
    if (!mr_case_layer_count(c) || !mr_case_phase_count(c)) abort();
    bool generated = json_object_get(mr_case_json(c), "generate") != NULL;
    for (size_t i = 0; i < mr_case_layer_count(c) && !generated; i++) {
        struct mr_case_layer t;
        int layer = mr_case_layer_number(c, i);
        status = mr_case_get(c, layer, mr_case_phase(c, 0), &t, &err);
        if (status != MR_OK) continue; /* a bias that only a checkpoint could hold */
        if (t.layer != layer || !t.logits.data) abort();
        touch(t.logits);
        touch(t.bias);
        mr_case_release(c, layer, t.phase);
    }
    mr_case_free(c);
    return 0;
}
