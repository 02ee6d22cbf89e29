/* Language models: the record's question is asked as a user would ask it. */
#include "asked.h"
#include "predictors.h"
#include "ty_study.h"

#include <stdio.h>
#include <string.h>

static bool is_language_model(const ty_record *r)
{
    static const char *const families[] = {"gpt", "moe-gpt", "bert", "t5", "encoder-decoder"};

    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strcmp(r->model_family, families[i]) == 0)
            return true;
    return false;
}

bool ty_takes_language_model(const ty_records *records, uint32_t index)
{
    const ty_record *r = &records->items[index];
    return is_language_model(r) && strcmp(r->kind, "training-speed") == 0;
}

/* The command that has the same answer. */
static ty_status write_command(const ty_asked *asked, char **out, ty_error *error)
{
    const struct {
        const char *option, *value;
    } options[] = {{"--workload", asked->workload},
                   {"--cluster", asked->cluster},
                   {"--stack", asked->stack},
                   {"--precision", asked->precision},
                   {"--fix", asked->fix}};
    const size_t count = sizeof options / sizeof options[0];
    const char *words[2 * (sizeof options / sizeof options[0]) + 6] = {"plan"};
    size_t at = 1;
    char batch[16];

    for (size_t i = 0; i < count; i++) {
        if (options[i].value[0] == '\0')
            continue;
        words[at++] = options[i].option;
        words[at++] = options[i].value;
    }
    snprintf(batch, sizeof batch, "%u", asked->global_batch);
    words[at++] = "--global-batch";
    words[at++] = batch;
    words[at++] = "--no-simulate";
    words[at] = "--json";
    return ty_verdict_command(words, out, error);
}

static ty_status ask(const ty_asked *asked, double *step_s, bool *is_fitted,
                     const ty_record *record, ty_error *error)
{
    const ty_question question = {.workload = asked->workload,
                                  .cluster = asked->cluster,
                                  .stack = asked->stack,
                                  .precision = asked->precision,
                                  .fix = asked->fix,
                                  .global_batch = asked->global_batch,
                                  .seed = 1};
    ty_question_inputs inputs = {0};
    char source[64];
    ty_plan *plan = NULL;
    ty_status status = TY_OK;

    TY_CHECK(ty_question_open(&question, NULL, &inputs, error), status, cleanup);
    TY_CHECK(ty_question_plan(&question, &inputs, NULL, &plan, error), status, cleanup);
    *step_s = plan->prediction.step_time_s;
    snprintf(source, sizeof source, "%.*s", (int)strcspn(record->id, "/"), record->id);
    for (char *c = source; *c != '\0'; c++)
        *c = *c == '-' ? '_' : *c;
    *is_fitted = ty_stack_is_fitted(inputs.stack, source, record->model);

cleanup:
    ty_plan_free(plan);
    ty_question_inputs_clear(&inputs);
    return status;
}

/* What ran did fit: recomputing that is not stated must have been full where nothing else fits. */
static bool recompute_in_full(const ty_record *r, ty_asked *asked)
{
    char *none = strstr(asked->fix, "recompute=none");
    char *note = strstr(asked->assumed, "nothing recomputed");

    if (r->recompute[0] != '\0' || none == NULL || note == NULL)
        return false;
    memcpy(none, "recompute=full", strlen("recompute=full"));
    memcpy(note, "blocks recomputed ", strlen("nothing recomputed"));
    return true;
}

/* In the record's own unit: its figure times or over how much slower the predicted step is. */
ty_status ty_predict_language_model(const ty_records *records, uint32_t index, ty_verdict *out,
                                    ty_error *error)
{
    const ty_record *r = &records->items[index];
    ty_asked asked;
    double slower;
    ty_status status = TY_OK;

    TY_CHECK(ty_ask_language_model(r, &asked, out->reason, error), status, done);
    if (out->reason[0] != '\0')
        goto done;
    status = ask(&asked, &out->answer, &out->is_fitted, r, error);
    if (status == TY_EINFEASIBLE && recompute_in_full(r, &asked))
        status = ask(&asked, &out->answer, &out->is_fitted, r, error);
    if (status != TY_OK)
        goto done;
    TY_CHECK(write_command(&asked, &out->command, error), status, done);
    slower = out->answer / asked.measured_step_s;
    out->answer_at = TY_STEP_TIME_AT;
    out->is_predicted = true;
    out->value = ty_record_more_is_better(r) ? r->value / slower : r->value * slower;
    snprintf(out->assumed, sizeof out->assumed, "%s", asked.assumed);
done:
    return status;
}
