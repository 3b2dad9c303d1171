/* mr_api_verify: the judge on arrays. Ids with weights are one source and logits another, so that
 * each has its verdict. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../io/observed.h"
#include "../io/verify_report.h"
#include "../route/profile.h"
#include "api_private.h"

enum { MOST = 2 }; /* sources */

struct judging {
    struct mr_observed observed[MOST];
    struct mr_error_model model;
    uint8_t *verdicts[MOST];
    struct mr_verify_tally tally[MOST];
    struct mr_verify_row row[MOST];
    const char *name[MOST], *arith[MOST];
    char radius[MR_RADIUS_TEXT];
    struct mr_verify_experts experts;
    size_t count;
    bool ordered;
};

/* One source, of the arrays listed. */
static enum mr_status add(struct judging *j, const struct mr_api_input *input, const char *name,
                          bool logits, size_t tokens, uint64_t non_padded, uint8_t *verdicts,
                          struct mr_error *err)
{
    static const char *const names[4] = {"topk_ids", "topk_weights", "gate_logits", "token_index"};
    static const char source[] = "observed";
    struct mr_observed *o = &j->observed[j->count];
    bool found;
    *o = (struct mr_observed){.source = source, .tokens = tokens, .non_padded = non_padded,
                              .token_index = input->array[API_TOKEN_INDEX]};
    if (logits) o->logits = input->array[API_GATE_LOGITS];
    else o->ids = input->array[API_IDS], o->weights = input->array[API_WEIGHTS];
    j->verdicts[j->count] = verdicts;
    j->name[j->count] = name;
    j->row[j->count].source = j->count;
    j->arith[j->count++] = j->radius;
    TRY(mr_observed_check(o, &input->router, names, &found, err));
    if (!o->token_index.data && o->rows != tokens)
        return mr_fail(err, MR_ERR_SHAPE, "%s: %zu rows for %zu tokens: token_index says which is "
                       "which", names[logits ? 2 : 0], o->rows, tokens);
    return MR_OK;
}

static enum mr_status sources(struct judging *j, const struct mr_api_input *input,
                              const struct api_options *options, size_t tokens, uint64_t rows,
                              uint8_t *verdicts, uint8_t *logit_verdicts, struct mr_error *err)
{
    bool ids = input->array[API_IDS].data, logits = input->array[API_GATE_LOGITS].data;
    if (!ids && input->array[API_WEIGHTS].data)
        return mr_fail(err, MR_ERR_MISSING, "topk_weights of which experts? expected topk_ids");
    if (!ids && !logits) return mr_fail(err, MR_ERR_MISSING, "expected topk_ids or gate_logits");
    if ((verdicts && !ids) || (logit_verdicts && !logits))
        return mr_fail(err, MR_ERR_USAGE, "verdicts wanted of what is not there");
    if (ids)
        TRY(add(j, input, "topk", false, tokens, options->non_padded, verdicts, err));
    if (logits)
        TRY(add(j, input, "gate_logits", true, tokens, options->non_padded, logit_verdicts, err));
    for (size_t i = 0; i < j->count; i++)
        if (j->observed[i].rows != rows)
            return mr_fail(err, MR_ERR_SHAPE, "%s has %zu rows, expected %" PRIu64, j->name[i],
                           j->observed[i].rows, rows);
    return MR_OK;
}

static enum mr_status promises(struct judging *j, const struct mr_router *router,
                               const char *profile, struct mr_error *err)
{
    const struct mr_profile_row *row;
    if (!profile) return MR_OK;
    const struct mr_profile *p = mr_profile_find(profile);
    if (!p)
        return mr_fail(err, MR_ERR_VALUE, "profile '%.64s': no such profile; known: %s", profile,
                       mr_profile_names());
    TRY(mr_profile_row(p, router, false, &row, err));
    j->ordered = mr_profile_promises_order(row);
    return MR_OK;
}

static enum mr_status declare(struct judging *j, const char *line, bool given,
                              struct mr_error *err)
{
    struct mr_arith arith = {0};
    if (line) TRY(mr_arith_parse(line, &arith, err));
    j->model = mr_error_model(line ? &arith : NULL);
    mr_radius_text(line, "", given, arith.sum.leaf != MR_LEAF_EXACT, j->radius);
    return MR_OK;
}

static json_t *report(struct judging *j, const struct mr_router *router,
                      const struct api_options *options, struct mr_findings *worst)
{
    struct mr_verify_report r = {.case_name = "arrays", .arith = j->radius,
                                 .profile = options->profile, .strict = options->strict,
                                 .experts = router->experts, .top_k = router->top_k,
                                 .source_count = j->count, .source = j->name,
                                 .source_arith = j->arith, .row_count = j->count, .row = j->row,
                                 .layer_count = 1, .layer = &j->experts, .worst = *worst};
    for (size_t i = 0; i < j->count; i++) {
        j->row[i].phase = "all";
        j->row[i].tally = j->tally[i];
        mr_tally_add(&r.total, &j->tally[i]);
    }
    return mr_verify_json(&r);
}

/* The layer is there. */
static enum mr_status judge(struct judging *j, const struct api_layer *layer,
                            const struct api_options *options, char **text, struct mr_error *err)
{
    const struct mr_router *router = layer->layer.router;
    size_t experts = (size_t)router->experts;
    struct mr_findings worst;
    TRY(mr_findings_new((size_t)options->worst, router->top_k, &worst));
    j->experts.gained = calloc(experts, sizeof *j->experts.gained);
    j->experts.lost = calloc(experts, sizeof *j->experts.lost);
    enum mr_status status = j->experts.gained && j->experts.lost ? MR_OK : MR_ERR_MEMORY;
    struct mr_verify_options to = {.threads = options->threads,
                                   .without_blas = options->without_blas,
                                   .model = j->model,
                                   .ordered = j->ordered,
                                   .phase = "all"};
    struct mr_verify_result result = {.tally = j->tally, .gained = j->experts.gained,
                                      .lost = j->experts.lost, .verdicts = j->verdicts};
    if (!status)
        status = mr_verify_layer(&layer->layer, &to, j->observed, j->count, &result, &worst, err);
    if (!status && text) {
        *text = mr_api_text(report(j, router, options, &worst));
        if (!*text) status = MR_ERR_MEMORY;
    }
    free(j->experts.gained);
    free(j->experts.lost);
    mr_findings_free(&worst);
    return status;
}

static void mark_padding(uint8_t *verdicts, uint64_t rows)
{
    for (uint64_t i = 0; verdicts && i < rows; i++)
        if (verdicts[i] == MR_VERDICT_COUNT) verdicts[i] = MR_API_PADDING;
}

int mr_api_verify(const struct mr_api_input *input, const char *options, uint64_t rows,
                  uint8_t *verdicts, uint8_t *logit_verdicts, char **text, char *why,
                  size_t why_bytes)
{
    struct mr_error err = {{0}};
    struct api_options read;
    struct api_layer layer = {0};
    struct judging j = {0};
    if (text) *text = NULL;
    enum mr_status status = mr_api_options(options, true, &read, &err);
    if (!status) status = mr_api_layer(input, &read, &layer, &err);
    if (!status)
        status = sources(&j, input, &read, layer.tokens, rows, verdicts, logit_verdicts, &err);
    if (!status) status = promises(&j, &input->router, read.profile, &err);
    if (!status) status = declare(&j, read.arith, layer.layer.logits.data != NULL, &err);
    if (!status) status = judge(&j, &layer, &read, text, &err);
    if (!status) {
        mark_padding(verdicts, rows);
        mark_padding(logit_verdicts, rows);
    }
    for (size_t i = 0; i < j.count; i++) mr_observed_free(&j.observed[i]);
    mr_api_layer_free(&layer);
    json_decref(read.json);
    return mr_api_end(status, &err, why, why_bytes);
}
