/* The folder of cli.h, and the small case in it. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static char folder[64];
static char *remembered;

const char *cli_at(const char *name)
{
    static char path[32][512]; /* many may be in use at once */
    static unsigned turn;
    turn++;
    snprintf(path[turn % 32], sizeof path[0], "%s/%s", folder, name);
    return path[turn % 32];
}

/* Names in the folder, sorted, a line each; to be freed. */
static char *names(void)
{
    struct dirent **entry;
    int n = scandir(folder, &entry, NULL, alphasort);
    ck_assert_int_ge(n, 0);
    char *text;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    for (int i = 0; i < n; i++) {
        fprintf(f, "%s\n", entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
    fclose(f);
    return text;
}

void cli_remember(void)
{
    free(remembered);
    remembered = names();
}

void cli_refused(int status, const char *word, const char *second)
{
    const char *err = cli_last.err;
    ck_assert_msg(cli_last.status == status, "status %d, signal %d, expected %d: %s",
                  cli_last.status, cli_last.signal, status, err);
    ck_assert_msg(cli_last.out_bytes == 0, "output in spite of: %s", err);
    ck_assert_msg(strncmp(err, "moeref: ", 8) == 0, "not in our words: %s", err);
    const char *line = strchr(err, '\n');
    ck_assert_msg(line && line[1] == '\0' && line - err > 12, "expected one line: %s", err);
    ck_assert_msg(!word || strstr(err, word), "no '%s' in: %s", word, err);
    ck_assert_msg(!second || strstr(err, second), "no '%s' in: %s", second, err);
    if (!remembered) return;
    char *found = names();
    ck_assert_msg(strcmp(found, remembered) == 0, "after '%s' the folder holds\n%s", err, found);
    free(found);
}

void cli_put(const char *name, const void *bytes, size_t count)
{
    FILE *f = fopen(cli_at(name), "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, count, f), count);
    ck_assert_int_eq(fclose(f), 0);
}

void cli_put_json(const char *name, const char *text)
{
    char *copy = strdup(text);
    for (char *p = copy; *p; p++)
        if (*p == '\'') *p = '"';
    cli_put(name, copy, strlen(copy));
    free(copy);
}

char *cli_get(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s: not there", path);
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*bytes + 1);
    ck_assert_uint_eq(fread(text, 1, *bytes, f), *bytes);
    text[*bytes] = '\0';
    fclose(f);
    return text;
}

bool cli_same(const char *path, const char *other)
{
    size_t n, m;
    char *a = cli_get(path, &n), *b = cli_get(other, &m);
    bool same = n == m && memcmp(a, b, n) == 0;
    free(a);
    free(b);
    return same;
}

void cli_put_tensors(const char *name, const struct cli_tensor *tensors, size_t count)
{
    struct mr_error err = {{0}};
    struct mr_writer *w;
    size_t index[16];
    ck_assert_uint_le(count, 16);
    ck_assert_int_eq(mr_writer_new(cli_at(name), &w, &err), MR_OK);
    for (size_t i = 0; i < count; i++) {
        uint64_t shape[2] = {tensors[i].rows, tensors[i].cols};
        ck_assert_int_eq(mr_writer_declare(w, tensors[i].name, tensors[i].dtype,
                                           tensors[i].cols ? 2 : 1, shape, &index[i], &err), MR_OK);
    }
    ck_assert_msg(mr_writer_begin(w, &err) == MR_OK, "%s", err.text);
    for (size_t i = 0; i < count; i++) {
        uint64_t n = tensors[i].rows * (tensors[i].cols ? tensors[i].cols : 1);
        n = n * mr_dtype_bits(tensors[i].dtype) / 8;
        ck_assert_int_eq(mr_writer_put(w, index[i], 0, tensors[i].data, n, &err), MR_OK);
    }
    ck_assert_msg(mr_writer_finish(w, &err) == MR_OK, "%s", err.text);
}

/* Any numbers in [-1, 1) will do, as long as they are the same in every run: the top 16 bits of a
 * linear congruential generator (Knuth's MMIX constants). */
static float next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int16_t)(*state >> 48) / 32768.0f;
}

/* The top half of the fp32 encoding: a bf16 number, whichever. */
static uint16_t upper(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

void cli_values(struct cli_values *v)
{
    uint64_t state = 1;
    for (size_t i = 0; i < CLI_TOKENS * CLI_HIDDEN; i++) v->hidden[i] = upper(next(&state));
    for (size_t i = 0; i < CLI_EXPERTS * CLI_HIDDEN; i++) v->gate[i] = upper(next(&state) / 4);
    for (size_t i = 0; i < CLI_EXPERTS; i++) v->bias[i] = next(&state) / 4;
}

void cli_put_hidden(const char *name, const struct cli_values *v)
{
    cli_put_tensors(name, &(struct cli_tensor){CLI_INPUT, MR_BF16, CLI_TOKENS, CLI_HIDDEN,
                                               v->hidden}, 1);
}

void cli_put_weights(const char *name, const struct cli_values *v)
{
    const struct cli_tensor tensors[] = {
        {CLI_GATE, MR_BF16, CLI_EXPERTS, CLI_HIDDEN, v->gate},
        {CLI_BIAS, MR_F32, CLI_EXPERTS, 0, v->bias},
        {"model.layers.1.mlp.gate.weight", MR_BF16, CLI_EXPERTS, CLI_HIDDEN, v->gate},
        {"model.layers.1.mlp.gate.e_score_correction_bias", MR_F32, CLI_EXPERTS, 0, v->bias},
    };
    cli_put_tensors(name, tensors, 4);
}

void cli_start(void)
{
    struct cli_values v;
    strcpy(folder, "/tmp/moeref-cli-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    cli_values(&v);
    cli_put_hidden("hidden.st", &v);
    cli_put_weights("weights.st", &v);
    cli_put_json("case.json", "{" CLI_HEAD CLI_WEIGHTS "'capture':['hidden.st'],'router':{"
                 CLI_ROUTER "}}");
    cli_put_json("config.json", "{'model_type':'glm4_moe','n_routed_experts':16,"
                 "'num_experts_per_tok':4,'hidden_size':64,'num_hidden_layers':2,"
                 "'first_k_dense_replace':1,'routed_scaling_factor':2.5,'n_group':1,"
                 "'topk_group':1,'norm_topk_prob':true}");
}

void cli_stop(void)
{
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && unlink(cli_at(e->d_name)))
            rmdir(cli_at(e->d_name));
    if (d) closedir(d);
    rmdir(folder);
    free(remembered);
    remembered = NULL;
}
