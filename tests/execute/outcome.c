#include "outcome.h"

#include "emulation.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

void outcome_free(outcome *o)
{
    ty_free(o->gradients);
    ty_run_free(o->run);
}

outcome outcome_of(const ty_job *job)
{
    ty_error error = {0};
    outcome result = {0};

    cr_assert_eq(ty_execute_job_locally(job, ty_plan_launched_count(job->plan),
                                        &(ty_execute_options){0}, &error),
                 TY_OK, "%s of %s: %s", job->plan->strategy, job->plan->workload->name,
                 error.message);
    if (job->gradients != NULL)
        cr_assert_eq(
            ty_file_read(job->gradients, 0, &result.gradients, &result.gradient_length, &error),
            TY_OK, "%s", error.message);
    cr_assert_eq(ty_run_load(job->output, &result.run, &error), TY_OK, "%s", error.message);
    cr_assert_eq(result.run->step_count, job->steps);
    return result;
}

/* Each layer's difference in norm, relative to the layer's gradient plus a thousandth of the
 * largest layer's: the effect of another order of float sums. */
void compare_gradients(const char *what, const outcome *found, const outcome *expected,
                       double tolerance)
{
    const char *f = found->gradients, *e = expected->gradients;
    double scale = 0;

    cr_assert_eq(found->gradient_length, expected->gradient_length, "%s", what);
    for (int pass = 0; pass < 2; pass++) {
        size_t at = 0, compared = 0;
        while (at < expected->gradient_length) {
            uint64_t header[2], other[2];
            double difference = 0, norm = 0;

            memcpy(header, e + at, sizeof header);
            memcpy(other, f + at, sizeof other);
            cr_assert(header[0] == other[0] && header[1] == other[1], "%s: layer %llu", what,
                      (unsigned long long)header[0]);
            at += sizeof header;
            for (uint64_t i = 0; i < header[1]; i++, at += sizeof(float)) {
                float a, b;
                memcpy(&a, f + at, sizeof a);
                memcpy(&b, e + at, sizeof b);
                difference += ((double)a - b) * ((double)a - b);
                norm += (double)b * b;
            }
            if (pass == 0) {
                scale = fmax(scale, sqrt(norm));
            } else {
                double limit = tolerance * (sqrt(norm) + 1e-3 * scale);
                cr_assert(sqrt(difference) <= limit,
                          "%s: gradients of layer %llu differ by %g, expected at most %g", what,
                          (unsigned long long)header[0], sqrt(difference), limit);
                compared += header[1];
            }
        }
        cr_assert(scale > 0, "%s: all gradients are 0", what);
        cr_assert(pass == 0 || compared > 0, "%s", what);
    }
}

void compare_losses(const char *what, const outcome *found, const outcome *expected,
                    double tolerance)
{
    for (uint32_t i = 0; i < expected->run->step_count; i++) {
        double f = found->run->losses[i], e = expected->run->losses[i];
        cr_assert(fabs(f - e) <= tolerance * fabs(e), "%s: loss of step %u is %.9g, expected %.9g",
                  what, i, f, e);
    }
}

void compare_emulated(const char *what, const ty_job *job, double tolerance)
{
    outcome found = outcome_of(job);
    double *expected = ty_alloc(job->steps, sizeof *expected);

    emulate_job(job, expected);
    for (uint32_t s = 0; s < job->steps; s++)
        cr_assert(fabs(found.run->losses[s] - expected[s]) <= tolerance * expected[s],
                  "%s: loss of step %u is %.9g, expected %.9g", what, s, found.run->losses[s],
                  expected[s]);
    ty_free(expected);
    outcome_free(&found);
}
