/* Which predictor takes which record. */
#include "predictors.h"

#include <stdio.h>
#include <string.h>

/* ---- Not predicted ----------------------------------------------------------------------- */

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
    {"collective", "collectives of 1 MiB and more, by the library's modelled choice",
     ty_takes_large_collective, ty_predict_collective},
    {"collective-small", "smaller ones, where launching is most of the time",
     ty_takes_small_collective, ty_predict_collective},
    {"noise-scale-law", "samples to target at a batch size, fitted to other batch sizes",
     ty_takes_convergence, ty_predict_convergence},
    {"language-model", "language models: the plan with the stated layout pinned",
     ty_takes_language_model, ty_predict_language_model},
    {"series",
     "other networks on more devices, from the measurement on the fewest and the gradients' size",
     ty_takes_series, ty_predict_series},
    {"none", "what nobody predicts", takes_all, skip_all},
};

const ty_predictor *ty_predictor_at(uint32_t index)
{
    return index < sizeof predictors / sizeof predictors[0] ? &predictors[index] : NULL;
}
