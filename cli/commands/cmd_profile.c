/* trainyard profile: measures this machine for a workload. */
#include "cli.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_SIZES 16

static bool is_cuda(const cli_options *options)
{
    return options->backend != NULL && strcmp(options->backend, "cuda") == 0;
}

static ty_status parse_sizes(const char *text, uint32_t sizes[MAX_SIZES], uint32_t *count,
                             ty_error *error)
{
    ty_status status = TY_OK;
    char *copy = ty_strdup(text);
    char *rest = copy;
    char *item;
    uint64_t size;

    *count = 0;
    TY_TRY(ty_check_memory(copy != NULL, error));
    while (status == TY_OK && (item = strtok_r(rest, ",", &rest)) != NULL) {
        status =
            ty_parse_uint(item, *count > 0 ? sizes[*count - 1] + 1 : 1, 1u << 30, &size, error);
        if (status == TY_OK && *count == MAX_SIZES)
            status = ty_fail(error, TY_EINVAL, "at most %d sizes", MAX_SIZES);
        else if (status == TY_OK)
            sizes[(*count)++] = (uint32_t)size;
    }
    if (status == TY_OK && *count == 0)
        status = ty_fail(error, TY_EINVAL, "found nothing, expected sizes as in 16,32,64");
    ty_free(copy);
    return status;
}

/* ---- profile import ------------------------------------------------------------------------ */

static ty_status import_trace(const char *path, const cli_options *options, uint32_t samples,
                              ty_import_report *report, ty_profile **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_profile *trace = NULL;
    ty_workload *workload = NULL;

    TY_CHECK(ty_profile_import_kineto(path, &trace, report, error), status, cleanup);
    if (options->workload == NULL) {
        *out = trace;
        trace = NULL; /* ownership passed on */
        goto cleanup;
    }
    TY_CHECK(ty_workload_open(options->workload, &workload, error), status, cleanup);
    status = ty_profile_of_trace(trace, workload, samples, out, report, error);

cleanup:
    ty_workload_free(workload);
    ty_profile_free(trace);
    return status;
}

exit_code profile_import(const char *command, const char *path, const cli_options *options)
{
    exit_code code = EXIT_DONE;
    ty_error error = {0};
    ty_import_report report = {0};
    ty_profile *profile = NULL;
    uint32_t sizes[MAX_SIZES] = {0}, count = 0;

    if ((options->workload != NULL) != (options->micro_batches != NULL))
        return report_usage(command, "import needs --workload and --micro-batches together");
    if (options->micro_batches != NULL &&
        (parse_sizes(options->micro_batches, sizes, &count, &error) != TY_OK || count != 1))
        return report_usage(command, "--micro-batches: expected one number, the samples of a pass");
    if (import_trace(path, options, sizes[0], &report, &profile, &error) != TY_OK) {
        code = report_bad_input(&error);
    } else {
        if (!options->quiet)
            print_import_report(path, &report);
        if (ty_profile_save(profile, options->output != NULL ? options->output : "-", &error) !=
            TY_OK)
            code = report_failure(&error);
    }
    ty_import_report_clear(&report);
    ty_profile_free(profile);
    return code;
}

/* ---- profile --data ------------------------------------------------------------------------ */

static void print_samples(const ty_samples *s, ty_text *text)
{
    char sample[32], data[32], names[64];
    ty_text words = {0};
    ty_input input;

    ty_format_bytes(s->sample_bytes, sample);
    ty_format_bytes(s->data_bytes, data);
    ty_text_addf(text, "%s: %llu samples of %s, %s in all\n", s->data,
                 (unsigned long long)s->sample_count, sample, data);
    ty_text_addf(text, "first visit   %.4g samples/s (%llu of them)\n",
                 s->first_visit_samples_per_s, (unsigned long long)s->visited);
    for (uint32_t i = 0; i < s->rate_count; i++) {
        const ty_samples_rate *rate = &s->rates[i];
        if (rate->threads == 0)
            snprintf(names, sizeof names, "by the rank");
        else
            snprintf(names, sizeof names, "%u thread%s", rate->threads,
                     rate->threads > 1 ? "s" : "");
        ty_text_addf(text, "%-13s %.4g samples/s, %.4g MB/s\n", names, rate->samples_per_s,
                     rate->samples_per_s * s->sample_bytes * 1e-6);
    }
    if (s->skipped > 0)
        ty_text_addf(text, "skipped       %u that cannot be read\n", s->skipped);
    ty_samples_input(s, &input);
    ty_input_words(&input, &words);
    if (words.data != NULL)
        ty_text_addf(text, "to plan with  --input %s\n", words.data);
    ty_text_clear(&words);
}

/* Profiles only the reading of samples from a path. */
static exit_code profile_samples(const cli_options *options, const ty_workload *workload)
{
    const ty_watch watch = watch_from(options);
    ty_error error = {0};
    ty_samples *samples = NULL;
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);

    interrupts_catch();
    if (ty_samples_measure(workload, options->data, (uint32_t)options->bad_samples, &watch,
                           &samples, &error) != TY_OK)
        return report_failure(&error);
    if (options->json || options->output != NULL) {
        ty_samples_to_json(samples, &writer);
        ty_text_add(&text, "\n");
    } else {
        print_samples(samples, &text);
    }
    ty_samples_free(samples);
    return deliver_text(options->output, &text);
}

/* ---- profile ------------------------------------------------------------------------------- */

/* Sets backend and precision; a layer in half precision has its own signature. */
static ty_status set_backend(const cli_options *options, ty_workload *workload, ty_error *error)
{
    const char *name = options->precision != NULL ? options->precision : "fp32";
    ty_precision precision;
    ty_error detail;

    if (ty_precision_find(name, &precision, &detail) != TY_OK || ty_precision_is_narrow(precision))
        return ty_fail(error, TY_EINVAL,
                       "--precision: found '%.40s', expected fp32, tf32, bf16 or fp16", name);
    if (!is_cuda(options) && precision != TY_PRECISION_FP32)
        return ty_fail(error, TY_EINVAL,
                       "--precision: the cpu backend computes in fp32; found '%s'", name);
    ty_workload_set_precision(workload, precision);
    return TY_OK;
}

/* Finds an option that excludes --data, or needs it. @return whether there is one */
static bool check_reading(const cli_options *options, const char **wrong)
{
    if (options->data == NULL && options->bad_samples_text != NULL)
        *wrong = "--bad-samples: found without --data, expected what is read";
    else if (options->data == NULL && options->json)
        *wrong = "--json: found without --data, a profile is JSON anyway";
    else if (options->data != NULL &&
             (options->backend != NULL || options->precision != NULL ||
              options->ranks_text != NULL || options->micro_batches != NULL))
        *wrong = "--data measures the reading of samples alone: found --backend, --precision, "
                 "--ranks or --micro-batches";
    else
        return false;
    return true;
}

exit_code cmd_profile(const cli_options *options)
{
    exit_code code = EXIT_DONE;
    ty_error error = {0};
    ty_workload *workload = NULL;
    ty_profile *profile = NULL;
    uint32_t sizes[MAX_SIZES], count = 0, ranks;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const ty_watch watch = watch_from(options);
    const char *wrong = NULL;

    if (options->file_count > 0) {
        if (strcmp(options->files[0], "import") != 0 || options->file_count != 2)
            return report_usage("profile", "found '%s', expected import TRACE or no argument",
                                options->files[0]);
        return profile_import("profile", options->files[1], options);
    }
    if (options->workload == NULL)
        return report_usage("profile", "--workload is needed");
    if (check_reading(options, &wrong))
        return report_usage("profile", "%s", wrong);
    if (options->backend != NULL && strcmp(options->backend, "cpu") != 0 && !is_cuda(options))
        return report_usage("profile", "--backend: found '%s', expected cpu or cuda",
                            options->backend);
    if (options->micro_batches != NULL &&
        parse_sizes(options->micro_batches, sizes, &count, &error) != TY_OK)
        return report_usage("profile", "--micro-batches: %s", error.message);
    if (ty_workload_open(options->workload, &workload, &error) != TY_OK)
        return report_bad_input(&error);
    if (options->data != NULL) {
        code = profile_samples(options, workload);
        ty_workload_free(workload);
        return code;
    }
    if (set_backend(options, workload, &error) != TY_OK) {
        ty_workload_free(workload);
        return report_usage("profile", "%s", error.message);
    }
    if (count == 0) {
        sizes[0] = workload->global_batch > 1 ? workload->global_batch / 2 : 1;
        sizes[1] = workload->global_batch;
        count = sizes[1] > sizes[0] ? 2 : 1;
    }
    /* Concurrent ranks: one per core; one on GPUs, which are not shared. */
    ranks = options->ranks > 0               ? (uint32_t)options->ranks
            : cores > 0 && !is_cuda(options) ? (uint32_t)cores
                                             : 1;
    interrupts_catch();
    if (ty_profile_measure(workload, is_cuda(options) ? "cuda" : "cpu", options->precision, ranks,
                           sizes, count, &watch, &profile, &error) != TY_OK ||
        ty_profile_save(profile, options->output != NULL ? options->output : "-", &error) != TY_OK)
        code = report_failure(&error);
    ty_profile_free(profile);
    ty_workload_free(workload);
    return code;
}
