#include "case_arguments.h"

#include <getopt.h>

#include "common.h"

const char *logits_case_path(const char *command, const struct mr_case_files *f, int argc,
                             char **argv)
{
    bool plain = f->config || f->gate || f->hidden || f->observed_logits;
    if (argc - optind > 1 || (argc - optind == 1) == plain)
        die(2, "%s: expected one CASE, or plain files by --config, --gate, --hidden and --logits "
               "(see 'moeref help %s')", command, command);
    if (plain && !(f->gate && f->hidden && f->observed_logits))
        die(2, "%s: plain files are --config, --gate, --hidden and --logits together: %s is missing",
            command, !f->gate ? "--gate" : !f->hidden ? "--hidden" : "--logits");
    return plain ? NULL : argv[optind];
}

struct mr_case *open_case(const char *command, const char *path, const struct mr_case_files *files,
                          const struct mr_case_options *options)
{
    struct mr_case *c;
    struct mr_error err = {{0}};
    enum mr_status status = path ? mr_case_load(path, options, &c, &err)
                                 : mr_case_from_files(files, &c, &err);
    if (status) die_of(status, &err);
    const json_t *doc = mr_case_json(c);
    bool made = json_object_get(doc, "generate") != NULL;
    if (options->seed >= 0 && !made)
        die(2, "%s: --seed: %s generates nothing", command, mr_case_name(c));
    if (options->capture && (made || json_object_get(doc, "inline")))
        die(2, "%s: --capture: %s captures nothing", command, mr_case_name(c));
    return c;
}
