#include "case_folder.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct mr_error case_err;
static char folder[64];

const char *folder_at(const char *name)
{
    static char path[32][384]; /* many may be in use at once */
    static unsigned turn;
    turn++;
    snprintf(path[turn % 32], sizeof path[0], "%s/%s", folder, name);
    return path[turn % 32];
}

static void folder_put(const char *name, const char *bytes, size_t n)
{
    FILE *f = fopen(folder_at(name), "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

void folder_put_tensors(const char *file, const char *list)
{
    char image[1 << 14] = {0};
    char header[4096] = "{";
    size_t data = 0;
    for (const char *p = list; *p;) {
        char name[96], dtype[8];
        unsigned rows, cols;
        int used = 0;
        ck_assert_int_eq(sscanf(p, " %95s %7s %u %u;%n", name, dtype, &rows, &cols, &used), 4);
        ck_assert_int_gt(used, 0);
        p += used;
        size_t width = (size_t)(mr_dtype_bits((enum mr_dtype)mr_dtype_parse(dtype)) / 8);
        size_t bytes = width * rows * (cols ? cols : 1), n = strlen(header);
        char shape[32];
        if (cols) snprintf(shape, sizeof shape, "%u,%u", rows, cols);
        else snprintf(shape, sizeof shape, "%u", rows);
        snprintf(header + n, sizeof header - n, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],"
                 "\"data_offsets\":[%zu,%zu]}", n > 1 ? "," : "", name, dtype, shape, data,
                 data + bytes);
        data += bytes;
    }
    strcat(header, "}");
    size_t n = strlen(header);
    image[0] = (char)n;
    image[1] = (char)(n >> 8);
    memcpy(image + 8, header, n);
    ck_assert_uint_le(8 + n + data, sizeof image);
    folder_put(file, image, 8 + n + data);
}

/* JSON with ' for ". */
static char *quoted(const char *text)
{
    char *copy = strdup(text);
    for (char *p = copy; *p; p++)
        if (*p == '\'') *p = '"';
    return copy;
}

static void folder_put_json(const char *name, const char *text)
{
    char *json = quoted(text);
    folder_put(name, json, strlen(json));
    free(json);
}

void folder_start(void)
{
    strcpy(folder, "/tmp/moeref-case-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    folder_put_json("glm.json", "{'model_type':'glm4_moe','n_routed_experts':4,"
                    "'num_experts_per_tok':2,'hidden_size':8,'num_hidden_layers':5,"
                    "'first_k_dense_replace':1}");
    folder_put_json("mixtral.json", "{'model_type':'mixtral','num_local_experts':4,"
                    "'hidden_size':8,'num_experts_per_tok':2,'num_hidden_layers':5}");
    folder_put_tensors("router.st",
                       GATE("1") " F32 4 8; " GATE("2") " F16 4 8; " GATE("3") " BF16 4 8;"
                       BIAS("1") " F32 4 0; " BIAS("2") " BF16 4 0; " BIAS("3") " F16 4 0;");
    folder_put_tensors("capture.st",
                       MLP("a", "1") "gate.input F16 3 8; " MLP("a", "2") "gate.input F32 3 8;"
                       MLP("b", "1") "gate.input BF16 0 8; " MLP("b", "1") "topk_ids U8 0 2;"
                       MLP("a", "1") "gate.logits F32 3 4; " MLP("a", "1") "topk_ids I64 3 2;"
                       MLP("a", "1") "topk_weights F64 3 2; " MLP("a", "0") "gate.input F32 3 8;");
    folder_put_tensors("mixtral.st", "model.layers.0.block_sparse_moe.gate.weight BF16 4 8;"
                       "model.layers.1.mlp.gate.weight BF16 4 8;");
}

void folder_stop(void)
{
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (*e->d_name != '.') unlink(folder_at(e->d_name));
    if (d) closedir(d);
    rmdir(folder);
}

enum mr_status case_parse(const char *text, const struct mr_case_options *options,
                          struct mr_case **c)
{
    char *json = quoted(text);
    case_err.text[0] = '\0';
    enum mr_status status = mr_case_parse(json, strlen(json), folder_at("case.json"), options, c,
                                          &case_err);
    free(json);
    ck_assert(status == MR_OK ? *c != NULL : *c == NULL && *case_err.text);
    return status;
}

void case_load(const char *path, struct mr_case **c)
{
    ck_assert_msg(mr_case_load(path, NULL, c, &case_err) == MR_OK, "%s", case_err.text);
}

void case_get(struct mr_case *c, int layer, const char *phase, struct mr_case_layer *out)
{
    ck_assert_msg(mr_case_get(c, layer, phase, out, &case_err) == MR_OK, "%s", case_err.text);
}

void ck_words(enum mr_status status, enum mr_status wanted, const char *const words[3],
                     const char *text)
{
    ck_assert_msg(status == wanted, "%s: %s: %s", text, mr_status_name(status), case_err.text);
    for (int i = 0; i < 3 && words[i]; i++)
        ck_assert_msg(strstr(case_err.text, words[i]), "%s: no '%s' in: %s", text, words[i],
                      case_err.text);
}
