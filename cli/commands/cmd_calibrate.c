/* trainyard calibrate: adds logs of nccl-tests to a profile as measured collectives. With a
 * workload instead, it fits convergence to short trainings or to published figures.
 * calibrate_stack.c has --stack. */
#include "cli.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- A workload ---------------------------------------------------------------------------- */

/* "top-k:0.01,powersgd-2" @param out [out] owned by the caller */
static ty_status compressors_read(const char *list, ty_compression **out, uint32_t *count,
                                  ty_error *error)
{
    ty_status status = TY_OK;
    ty_text name = {0};
    ty_error detail = {0};
    ty_compression *read = ty_alloc(list != NULL ? strlen(list) : 0, sizeof *read);

    *count = 0;
    TY_TRY(ty_check_memory(read != NULL, error));
    while (list != NULL && *list != '\0') {
        const size_t length = strcspn(list, ",");
        ty_text_clear(&name);
        ty_text_append(&name, list, length);
        list += length + (list[length] == ',');
        TY_CHECK(ty_text_check(&name, error), status, done);
        if (ty_compression_parse(name.data, &read[*count], &detail) != TY_OK)
            status = ty_fail(error, TY_EINVAL, "--compressions: %s", detail.message);
        else if (read[*count].kind == TY_COMPRESSION_NONE)
            status = ty_fail(error, TY_EINVAL, "--compressions: found none, expected compressors");
        if (status != TY_OK)
            goto done;
        ++*count;
    }
    *out = read;
    read = NULL; /* ownership passed on */
done:
    ty_text_clear(&name);
    ty_free(read);
    return status;
}

static void print_changes(const ty_calibration *c, ty_text *text)
{
    const ty_convergence *t = c->task;

    if (t->has_temperature_cost)
        ty_text_addf(text,
                     "temperature noise lengthens the way by exp(%.3g) (%.3g to %.3g) at this rate "
                     "and batch\n",
                     t->temperature_cost.expected, t->temperature_cost.low,
                     t->temperature_cost.high);
    else
        ty_text_addf(text, "temperature not measured: %s\n", c->temperature_note);
    for (uint32_t i = 0; i < t->compressor_count; i++) {
        const ty_compressor_calibration *k = &t->compressors[i];
        const bool is_lag = ty_compression_has_feedback(&k->compression);
        const ty_interval *cost = is_lag ? &k->lag : &k->factor;
        ty_text name = {0};
        ty_compression_text(&k->compression, &name);
        ty_text_addf(text, "%-11s loses %.3g of the gradient's square; %s %.3g (%.3g to %.3g)\n",
                     name.data != NULL ? name.data : "", k->distortion,
                     is_lag ? "stale updates:" : "steps times", cost->expected, cost->low,
                     cost->high);
        ty_text_clear(&name);
    }
    if (t->has_staleness)
        ty_text_addf(text, "staleness   stale updates per step of staleness: %.3g (%.3g to %.3g)\n",
                     t->staleness.expected, t->staleness.low, t->staleness.high);
    else
        ty_text_addf(text, "staleness   not measured: %s\n", c->staleness_note);
    if (c->notes.length > 0)
        ty_text_add(text, c->notes.data);
}

static void to_text(const ty_calibration *c, ty_text *text)
{
    const ty_convergence *t = c->task;
    const ty_calibration_batch *best = &c->batches[c->best];
    double scales[TY_NOISE_PARTS];

    ty_text_addf(text, "target      %s in %.4g steps of %u (%u runs, deviation %.2g)\n", t->target,
                 ty_convergence_steps(t, c->batch), c->batch, c->run_count, t->log_deviation);
    ty_text_addf(text, "noise scale %.4g samples (%u estimates; by eighths of the run",
                 t->noise_scale_samples, c->sample_count);
    ty_noise_parts(c->samples, c->sample_count, TY_NOISE_PARTS, scales);
    for (uint32_t p = 0; p < TY_NOISE_PARTS; p++)
        ty_text_addf(text, " %.3g", scales[p]);
    ty_text_addf(text, ")\nstep        %.3g s measured at batch %u\n", c->step_time_s, c->batch);
    print_changes(c, text);
    ty_text_addf(text, "\n%8s %14s %10s %12s %12s\n", "batch", "learning rate", "steps",
                 "step time s", "to target s");
    for (uint32_t i = 0; i < c->batch_count; i++) {
        const ty_calibration_batch *row = &c->batches[i];
        ty_text_addf(text, "%8u %14.4g %10.4g %12.4g %12.4g%s\n", row->batch, row->learning_rate,
                     row->steps, row->step_time_s, row->steps * row->step_time_s,
                     i == c->best ? "  <- least time" : "");
    }
    ty_text_addf(text,
                 "\npropose     --global-batch %u --learning-rate %.4g (%s rule)\nschedule   ",
                 best->batch, best->learning_rate, ty_scaling_rule_name(t->scaling_rule));
    for (uint32_t p = 0; p < TY_CALIBRATION_PHASES; p++)
        ty_text_addf(text, " %u", c->batches[c->schedule[p]].batch);
    ty_text_add(text, ", a quarter of the way each\n");
}

static exit_code calibrate_training(const cli_options *options)
{
    exit_code code;
    ty_error error = {0};
    ty_calibration_question question = {.runs = (uint32_t)options->seeds};
    ty_compression *compressions = NULL;
    ty_calibration c = {0};
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);
    const ty_watch watch = watch_from(options);

    if (question_from(options, 0, &question.question, &error) != TY_OK ||
        training_from(options, &question.training, &error) != TY_OK ||
        compressors_read(options->compressions, &compressions, &question.compression_count,
                         &error) != TY_OK) {
        code = report_bad_input(&error);
        goto cleanup;
    }
    question.compressions = compressions;
    interrupts_catch();
    if (ty_calibrate(&question, &watch, &c, &error) != TY_OK) {
        code = c.runs == NULL ? report_bad_input(&error) : report_failure(&error);
        goto cleanup;
    }
    ty_calibration_to_json(&c, &w);
    ty_text_add(&text, "\n");
    if (options->output != NULL && ty_file_write_text(options->output, &text, &error) != TY_OK) {
        ty_text_clear(&text);
        code = report_failure(&error);
        goto cleanup;
    }
    if (!options->json)
        ty_text_clear(&text);
    if (!options->json && (options->output == NULL || strcmp(options->output, "-") != 0))
        to_text(&c, &text);
    code = print_text(&text);

cleanup:
    ty_calibration_clear(&c);
    ty_free(compressions);
    return code;
}

/* ---- Published convergence ------------------------------------------------------------------ */

static void law_to_text(const ty_reached *reached, const ty_convergence *law, double batch,
                        ty_text *text)
{
    const ty_interval at = ty_convergence_samples(law, batch);

    ty_text_addf(text,
                 "law         %.4g %s with the smallest batches, noise scale %.4g samples\n"
                 "points      %u, of batches %g to %g; deviation from the law %.2g\n",
                 law->minimum_samples, reached->unit, law->noise_scale_samples, reached->count,
                 law->smallest_batch, law->largest_batch, law->log_deviation);
    if (batch > 0)
        ty_text_addf(text, "to target   %.4g %s (%.3g to %.3g) at batch %g\n", at.expected,
                     reached->unit, at.low, at.high, batch);
}

static exit_code calibrate_reached(const cli_options *options)
{
    const double batch = (double)options->global_batch;
    ty_error error = {0}, detail = {0};
    ty_reached reached = {0};
    ty_convergence law;
    ty_text text = {0};
    ty_status status = ty_reached_parse(options->reached, &reached, &detail);

    if (status == TY_OK)
        status = ty_reached_fit(&reached, &law, &detail);
    if (status == TY_OK && options->json) {
        ty_json_writer w = ty_json_writer_on(&text);
        ty_reached_to_json(&reached, &law, batch, &w);
        ty_text_add(&text, "\n");
    } else if (status == TY_OK) {
        law_to_text(&reached, &law, batch, &text);
    } else {
        status = ty_fail(&error, status, "--reached: %s", detail.message);
    }
    ty_reached_clear(&reached);
    return status == TY_OK ? deliver_text(options->output, &text) : report_bad_input(&error);
}

/* ---- Logs ---------------------------------------------------------------------------------- */

static ty_status add_log(const char *path, ty_collective_kind kind, const ty_cluster *cluster,
                         bool quiet, ty_profile *profile, ty_error *error)
{
    ty_collective_log *log = NULL;
    ty_error detail = {0};
    ty_status status;

    TY_TRY(ty_collective_log_load(path, kind, &log, error));
    status = ty_profile_calibrate(profile, log, cluster, &detail);
    if (status == TY_EINVAL)
        status = ty_fail(error, TY_EPARSE, "%s: %s", path, detail.message);
    else if (status != TY_OK)
        status = ty_fail(error, status, "%s", detail.message);
    else if (!quiet)
        print_stderr("%s: %u sizes of %s among %u ranks", path, log->row_count,
                     ty_collective_name(log->kind), log->ranks);
    ty_collective_log_free(log);
    return status;
}

exit_code cmd_calibrate(const cli_options *options)
{
    ty_error error = {0};
    ty_cluster *cluster = NULL;
    ty_profile *profile = NULL;
    ty_collective_kind kind = TY_COLLECTIVE_COUNT;
    const time_t now = time(NULL);
    char date[32] = "1970-01-01T00:00:00Z";
    struct tm day;
    exit_code code = EXIT_DONE;
    ty_status status;

    if (calibrates_stack(options))
        return calibrate_stack(options);
    if ((options->workload != NULL) + (options->file_count > 0) + (options->reached != NULL) > 1)
        return report_usage("calibrate", "expected one of logs, --workload and --reached");
    if (options->reached != NULL)
        return calibrate_reached(options);
    if (options->workload != NULL)
        return calibrate_training(options);
    if (options->file_count == 0)
        return report_usage("calibrate", "needs logs, --workload or --reached");
    if (options->cluster == NULL)
        return report_usage("calibrate", "--cluster is needed");
    TY_CHECK(collective_from(options, &kind, &error), status, failed);
    TY_CHECK(ty_cluster_open(options->cluster, NULL, &cluster, &error), status, failed);
    /* Adds rows to --profile, else to a profile of the cluster's devices. */
    if (options->profile == NULL && gmtime_r(&now, &day) != NULL)
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &day);
    status = options->profile != NULL ? ty_profile_load(options->profile, &profile, &error)
                                      : ty_profile_of_cluster(cluster, date, &profile, &error);
    TY_CHECK(status, status, failed);
    for (int i = 0; i < options->file_count; i++)
        TY_CHECK(add_log(options->files[i], kind, cluster, options->quiet, profile, &error), status,
                 failed);
    if (ty_profile_save(profile, options->output != NULL ? options->output : "-", &error) != TY_OK)
        code = report_failure(&error);
failed:
    if (status != TY_OK)
        code = report_bad_input(&error);
    ty_profile_free(profile);
    ty_cluster_free(cluster);
    return code;
}
