/* trainyard calibrate --trials: settings of the optimizer, by short trainings. */
#include "cli.h"

#include "ty_study.h"

#include <math.h>
#include <string.h>

static void print_trials(const ty_trials *trials, ty_text *text)
{
    const ty_trial *found = &trials->trials[0];

    ty_text_addf(text, "%13s %8s %7s %6s %8s %10s %9s\n", "learning rate", "momentum", "batch",
                 "rounds", "samples", "test loss", "accuracy");
    for (uint32_t i = 0; i < trials->count; i++) {
        const ty_trial *t = &trials->trials[i];
        ty_text_addf(text, "%13.4g %8.3g %7u %6u %8llu ", t->learning_rate, t->momentum, t->batch,
                     t->rounds, (unsigned long long)t->samples);
        if (isfinite(t->loss))
            ty_text_addf(text, "%10.4g %9.4g%s\n", t->loss, t->accuracy,
                         i == 0 ? "  <- found" : "");
        else
            ty_text_add(text, "  diverged\n");
    }
    ty_text_addf(text,
                 "\ncost        %.3g s of training on %u ranks, %llu samples in %u round%s; %llu "
                 "had all gone as far as the one found\n",
                 trials->seconds, trials->ranks, (unsigned long long)trials->samples,
                 trials->rounds, trials->rounds > 1 ? "s" : "",
                 (unsigned long long)trials->whole_samples);
    if (trials->has_noise_scale)
        ty_text_addf(text, "noise scale %.3g samples\n", trials->noise_scale_samples);
    for (uint32_t i = 0; i < trials->by_rule_count; i++)
        ty_text_addf(text, "by the rule batch %u with a learning rate of %.3g\n",
                     trials->by_rule[i].batch, trials->by_rule[i].learning_rate);
    ty_text_addf(text, "propose     --global-batch %u --learning-rate %.6g, momentum %.6g\n",
                 found->batch, found->learning_rate, found->momentum);
}

exit_code calibrate_trials(const cli_options *options)
{
    exit_code code;
    ty_error error = {0};
    ty_trials_question question = {.settings = options->trials};
    ty_trials trials = {0};
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    const ty_watch watch = watch_from(options);

    if (options->workload == NULL)
        return report_usage("calibrate", "--trials needs --workload and --cluster");
    if (options->compressions != NULL || options->seeds_text != NULL || options->until != NULL ||
        options->evaluate_every_text != NULL || options->learning_rate != NULL ||
        options->global_batch_text != NULL)
        return report_usage("calibrate",
                            "--trials: found with --until, --evaluate-every, --seeds, "
                            "--compressions, --learning-rate or --global-batch, expected rates and "
                            "batches among the trials, --steps, --seed and --data");
    if (question_from(options, 0, &question.question, &error) != TY_OK ||
        training_from(options, &question.training, &error) != TY_OK)
        return report_bad_input(&error);
    interrupts_catch();
    if (ty_trials_run(&question, &watch, &trials, &error) != TY_OK) {
        code = trials.rounds == 0 ? report_bad_input(&error) : report_failure(&error);
        goto cleanup;
    }
    if (options->json || options->output != NULL) {
        ty_trials_to_json(&trials, &writer);
        ty_text_add(&text, "\n");
    } else {
        print_trials(&trials, &text);
    }
    code = deliver_text(options->output, &text);
cleanup:
    ty_trials_clear(&trials);
    return code;
}
