/* Runs the program, never through a shell, and keeps what it wrote; and a folder with a small case
 * to run it on. */
#ifndef TESTS_CLI_H
#define TESTS_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../ref/io/safetensors.h"

/* The last run. */
struct cli_result {
    int status;      /* exit status; -1 after a signal or at the time limit */
    int signal;      /* that ended it, or 0 */
    bool late;       /* killed at the time limit */
    char *out, *err; /* ends with a zero byte that is not counted */
    size_t out_bytes, err_bytes;
};
extern struct cli_result cli_last;

/* What a run may be given beside its arguments. */
struct cli_setup {
    const char *out_path;     /* standard output goes there, not to cli_last.out */
    unsigned long file_limit; /* RLIMIT_FSIZE with SIGXFSZ ignored: writes beyond fail; 0: none */
};

/* moeref ARGUMENTS, the last of them NULL. The program is MOEREF_BIN, else moeref above the test
 * binary's folder. */
void cli_run(const struct cli_setup *setup, const char *const arguments[]);
#define cli(...) cli_run(NULL, (const char *const[]){__VA_ARGS__, NULL})

/* The last run went well, and wrote nothing to standard error. */
void cli_fine(void);
/* It was refused: that status, no output, one line "moeref: ..." that holds the words (NULL: not
 * asked), and the folder as the last cli_remember saw it. */
void cli_refused(int status, const char *word, const char *second);

/* Fixture: a folder that holds
 *   case.json     input hidden, phase p, layer 0; sigmoid, bias, 16 experts, top 4, hidden 64
 *   config.json   the same router as a glm4_moe config of two layers, the first of them dense
 *   weights.st    gate and bias of layers 0 and 1     hidden.st   9 tokens (bf16) for layer 0 */
enum { CLI_EXPERTS = 16, CLI_TOP_K = 4, CLI_HIDDEN = 64, CLI_TOKENS = 9 };
void cli_start(void);
void cli_stop(void);

#define CLI_GATE "model.layers.0.mlp.gate.weight"
#define CLI_BIAS "model.layers.0.mlp.gate.e_score_correction_bias"
#define CLI_INPUT "p.model.layers.0.mlp.gate.input"
#define CLI_ROUTER "'experts':16,'top_k':4,'hidden':64,'score':'sigmoid','bias':true,'n_group':1," \
                   "'topk_group':1,'norm_topk_prob':true,'routed_scaling_factor':2.5"
#define CLI_HEAD "'moeref_case':1,'name':'small','input':'hidden','phases':['p'],"
#define CLI_WEIGHTS "'checkpoint':['weights.st'],"

const char *cli_at(const char *name); /* its path; 32 stay valid at a time */
void cli_remember(void);              /* the names in the folder now */
void cli_put(const char *name, const void *bytes, size_t count);
void cli_put_json(const char *name, const char *text); /* with ' for " */
char *cli_get(const char *path, size_t *bytes);        /* all of a file, and a zero; to be freed */
bool cli_same(const char *path, const char *other);    /* bytes of two files */

struct cli_tensor {
    const char *name;
    enum mr_dtype dtype;
    uint64_t rows, cols; /* cols 0: one dimension */
    const void *data;
};
void cli_put_tensors(const char *name, const struct cli_tensor *tensors, size_t count);

/* The values of the small case, to be put with a change. BF16 hidden states, gate; F32 bias. */
struct cli_values {
    uint16_t hidden[CLI_TOKENS * CLI_HIDDEN], gate[CLI_EXPERTS * CLI_HIDDEN];
    float bias[CLI_EXPERTS];
};
void cli_values(struct cli_values *v);
void cli_put_hidden(const char *name, const struct cli_values *v);
void cli_put_weights(const char *name, const struct cli_values *v);

/* Standard output of the last run, or a file, as JSON; to be freed. */
json_t *cli_json(void);
json_t *cli_json_file(const char *path);
/* value is an object with these keys, separated by spaces, and no other. */
void cli_keys(const json_t *value, const char *keys);

#endif
