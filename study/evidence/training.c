/* Makes the job of a training. */
#include "ty_study.h"

#include "ty_base.h"

#include <string.h>

#define USUAL_STEPS 60
#define WARMUP_STEPS 10
#define TIMELINE_STEPS 20
#define EVALUATE_EVERY 50
#define STEPS_WHEN_UNTIL 100000

/* Durations of instructions for replay: the predicted ones without communication, which is replayed
 * itself. */
static ty_status times_copy(const ty_costs *costs, ty_job *job, ty_error *error)
{
    job->instruction_s = ty_job_times(job->program);
    TY_TRY(ty_check_memory(job->instruction_s != NULL, error));
    for (uint32_t s = 0; s < costs->stage_count; s++)
        for (uint32_t i = 0; i < costs->instruction_counts[s]; i++)
            job->instruction_s[s][i] =
                costs->instructions[s][i].seconds - costs->instructions[s][i].inner_s;
    return TY_OK;
}

ty_status ty_training_job(const ty_training *training, ty_plan_inputs *inputs, const char *output,
                          ty_job **out, ty_error *error)
{
    const bool has_target = ty_target_is_set(&training->until);
    ty_job *job = ty_alloc(1, sizeof *job);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(job != NULL, error));
    job->kind = TY_JOB_TRAIN;
    job->plan = inputs->plan;
    job->program = inputs->program;
    inputs->plan = NULL;
    inputs->program = NULL;
    job->backend = ty_strdup(training->backend != NULL ? training->backend : "cpu");
    job->precision = ty_strdup(training->precision);
    job->data = ty_strdup(training->data);
    job->output = ty_strdup(output);
    job->checkpoint = ty_strdup(training->checkpoint);
    job->checkpoint_every = training->checkpoint_every;
    job->checkpoint_every_s = training->checkpoint_every_s;
    job->keep = training->keep;
    job->resume = training->resume;
    job->init = ty_strdup(training->init);
    job->deterministic = training->deterministic;
    job->save_weights = ty_strdup(training->save_weights);
    job->bad_samples = training->bad_samples;
    job->steps = training->steps > 0 ? training->steps
                 : has_target        ? STEPS_WHEN_UNTIL
                                     : USUAL_STEPS;
    if (has_target) {
        job->until = training->until;
        job->evaluate_every =
            training->evaluate_every > 0 ? training->evaluate_every : EVALUATE_EVERY;
    }
    job->warmup_steps = job->steps > 2 * WARMUP_STEPS ? WARMUP_STEPS : job->steps / 4;
    job->timeline_steps = job->steps - job->warmup_steps;
    if (job->timeline_steps > TIMELINE_STEPS)
        job->timeline_steps = TIMELINE_STEPS;
    if (job->backend == NULL || job->output == NULL ||
        (training->checkpoint != NULL && job->checkpoint == NULL) ||
        (training->init != NULL && job->init == NULL) ||
        (training->save_weights != NULL && job->save_weights == NULL))
        status = ty_fail(error, TY_ENOMEM, "out of memory");
    else if (strcmp(job->backend, "replay") == 0)
        status = times_copy(inputs->costs, job, error);
    if (status != TY_OK) {
        ty_job_free(job);
        return status;
    }
    *out = job;
    return TY_OK;
}
