/* Which predictor takes which record. */
#include "predictors.h"

#include <stdio.h>
#include <string.h>

/* ---- Not predicted ----------------------------------------------------------------------- */

static bool is_language_model(const ty_record *r)
{
    static const char *const families[] = {"gpt", "moe-gpt", "bert", "t5", "encoder-decoder"};

    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strcmp(r->model_family, families[i]) == 0)
            return true;
    return false;
}

static bool takes_language_model(const ty_records *records, uint32_t index)
{
    const ty_record *r = &records->items[index];
    return is_language_model(r) &&
           (strcmp(r->kind, "training-speed") == 0 || strcmp(r->kind, "memory") == 0);
}

/* The place of the predictor for layouts of transformers (tensor, pipeline, context and expert
   parallelism): ty_record has the layout, ty_record_number(r, "model", "hidden") and the like the
   rest. */
static ty_status skip_language_model(const ty_records *records, uint32_t index, ty_verdict *out,
                                     ty_error *error)
{
    (void)records;
    (void)index;
    (void)error;
    snprintf(out->reason, sizeof out->reason, "language models: no predictor of layouts yet");
    return TY_OK;
}

static bool takes_all(const ty_records *records, uint32_t index)
{
    (void)records;
    (void)index;
    return true;
}

static ty_status skip_all(const ty_records *records, uint32_t index, ty_verdict *out,
                          ty_error *error)
{
    const ty_record *r = &records->items[index];

    (void)error;
    snprintf(out->reason, sizeof out->reason, "no predictor for %s of %.60s", r->kind,
             r->model_family[0] != '\0' ? r->model_family : "what it measures");
    return TY_OK;
}

/* ---- The table --------------------------------------------------------------------------- */

static const ty_predictor predictors[] = {
    {"data-parallel-scaling",
     "image networks on more devices, from the measurement on the fewest of the same series",
     ty_takes_data_parallel_scaling, ty_predict_data_parallel_scaling},
    {"data-parallel-absolute", "image networks from data sheets alone",
     ty_takes_data_parallel_absolute, ty_predict_data_parallel_absolute},
    {"pipeline", "GPipe's schedule on the optimum division of the network", ty_takes_pipeline,
     ty_predict_pipeline},
    {"pipedream", "steady state of an asynchronous pipeline over data parallelism",
     ty_takes_pipedream, ty_predict_pipedream},
    {"collective", "ring or tree over the cluster's links", ty_takes_collective,
     ty_predict_collective},
    {"noise-scale-law", "samples to target at a batch size, fitted to other batch sizes",
     ty_takes_convergence, ty_predict_convergence},
    {"language-model", "layouts of transformers", takes_language_model, skip_language_model},
    {"none", "what nobody predicts", takes_all, skip_all},
};

const ty_predictor *ty_predictor_at(uint32_t index)
{
    return index < sizeof predictors / sizeof predictors[0] ? &predictors[index] : NULL;
}
