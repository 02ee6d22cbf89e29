/* Language models: the record's question is asked as a user would ask it. */
#include "asked.h"
#include "predictors.h"

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
    return is_language_model(r) &&
           (strcmp(r->kind, "training-speed") == 0 ||
            (strcmp(r->kind, "time-to-train") == 0 && strcmp(r->metric, "time_to_train") == 0));
}

static bool replace(char text[TY_ASKED_SIZE], const char *from, const char *to)
{
    char tail[TY_ASKED_SIZE];
    char *at = strstr(text, from);

    if (at == NULL)
        return false;
    snprintf(tail, sizeof tail, "%s", at + strlen(from));
    snprintf(at, TY_ASKED_SIZE - (size_t)(at - text), "%s%s", to, tail);
    return true;
}

/* What ran did fit: recomputing that is not stated must have been full where nothing else fits. */
static bool recompute_in_full(const ty_record *r, ty_asked *asked)
{
    return r->recompute[0] == '\0' && replace(asked->fix, "recompute=none", "recompute=full") &&
           replace(asked->assumed, TY_ASSUMED_NO_RECOMPUTE, "blocks recomputed");
}

/* And replicas that are not said to share their states must have done so. */
static bool shard_states(ty_asked *asked)
{
    if (asked->sharded_stack[0] == '\0' || !replace(asked->fix, "zero=0", "zero=3"))
        return false;
    snprintf(asked->stack, sizeof asked->stack, "%s", asked->sharded_stack);
    snprintf(asked->assumed + strlen(asked->assumed),
             sizeof asked->assumed - strlen(asked->assumed), "%sZeRO 3",
             asked->assumed[0] != '\0' ? ", " : "");
    return true;
}

/* In the record's own unit: its figure times or over how much slower the predicted step is. */
ty_status ty_predict_language_model(const ty_records *records, uint32_t index, ty_verdict *out,
                                    ty_error *error)
{
    const ty_record *r = &records->items[index];
    ty_asked asked;
    double step_s, slower;
    ty_status status = TY_OK;

    TY_CHECK(ty_ask_language_model(r, &asked, out->reason, error), status, done);
    if (out->reason[0] != '\0')
        goto done;
    status = ty_asked_step(&asked, r, &step_s, &out->is_fitted, error);
    if (status == TY_EINFEASIBLE && recompute_in_full(r, &asked))
        status = ty_asked_step(&asked, r, &step_s, &out->is_fitted, error);
    if (status == TY_EINFEASIBLE && shard_states(&asked))
        status = ty_asked_step(&asked, r, &step_s, &out->is_fitted, error);
    if (status != TY_OK)
        goto done;
    TY_CHECK(ty_asked_answer(&asked, step_s, out, error), status, done);
    slower = step_s / asked.measured_step_s;
    out->value = ty_record_more_is_better(r) ? r->value / slower : r->value * slower;
    snprintf(out->assumed, sizeof out->assumed, "%s", asked.assumed);
done:
    return status;
}
