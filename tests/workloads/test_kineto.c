/* Traces of PyTorch's profiler: real ones against sums made with a JSON library, small ones by
 * hand, truncated, broken and hostile ones. */
#include "imports.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

static void temporary_path(char path[64])
{
    int file;
    strcpy(path, "/tmp/trainyard-trace-XXXXXX");
    file = mkstemp(path);
    cr_assert_geq(file, 0);
    close(file);
}

/* Writes text to a file, compressed or not, and imports it. */
static ty_status import(const char *text, size_t length, bool is_packed, size_t drop,
                        ty_profile **out, ty_import_report *report, ty_error *error)
{
    char path[64];
    gzFile packed;
    ty_status status;

    temporary_path(path);
    packed = gzopen(path, is_packed ? "wb" : "wbT");
    cr_assert_not_null(packed);
    cr_assert(length == 0 || gzwrite(packed, text, (unsigned)length) == (int)length);
    gzclose(packed);
    if (drop > 0) {
        FILE *file = fopen(path, "rb");
        long size = 0;
        cr_assert(file != NULL && fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) > 0);
        fclose(file);
        cr_assert_eq(truncate(path, size - (long)drop), 0);
    }
    status = ty_profile_import_kineto(path, out, report, error);
    unlink(path);
    return status;
}

static const ty_layer_time *find(const ty_profile *p, const char *signature)
{
    for (uint32_t i = 0; i < p->layer_time_count; i++)
        if (strcmp(p->layer_times[i].signature, signature) == 0)
            return &p->layer_times[i];
    return NULL;
}

/* Counted with Python's json: events of category kernel and their names; steps. */
Test(kineto, real_traces)
{
    static const struct {
        const char *file, *machine, *note;
        uint32_t kernel_names;
    } rows[] = {
        {"kineto/alexnet.trace.json.gz", "NVIDIA A100-PG509-200",
         "79 kernels of 1408 events: 10.7 ms", 16},
        {"kineto/sampled_rank-0.json.gz", "not in the trace", "1154 kernels of 4855 events: 607 ms",
         194},
        {"kineto/amd_mi250_minitoy.json.gz", "AMD Radeon Graphics",
         "14 kernels of 220 events: 111 us", 12},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[512];
        ty_profile *p = NULL, *again = NULL;
        ty_import_report report = {0};
        ty_error error = {0};
        uint32_t kernels = 0;

        snprintf(path, sizeof path, MEASURED_DATA "%s", rows[i].file);
        if (!ty_file_exists(path))
            cr_skip_test("%s is not here", path);
        cr_assert_eq(ty_profile_import_kineto(path, &p, &report, &error), TY_OK, "%s",
                     error.message);
        for (uint32_t k = 0; k < p->layer_time_count; k++)
            kernels += strncmp(p->layer_times[k].signature, "kernel ", 7) == 0;
        cr_assert_eq(kernels, rows[i].kernel_names, "%s: %u names", rows[i].file, kernels);
        cr_assert_str_eq(p->machine, rows[i].machine);
        cr_assert(report_has_note(&report, rows[i].note), "%s: %s", rows[i].file, report.notes[0]);
        temporary_path(path);
        cr_assert_eq(ty_profile_save(p, path, &error), TY_OK, "%s", error.message);
        cr_assert_eq(ty_profile_load(path, &again, &error), TY_OK, "%s", error.message);
        unlink(path);
        ty_import_report_clear(&report);
        ty_profile_free(p);
        ty_profile_free(again);
    }
}

static const char small[] =
    "{\"schemaVersion\": 1, \"x\": [[], {\"a\": [1e3, \"\\u00e9\\\"]\"]}, -2.5e-1, null, true],\n"
    "\"deviceProperties\": [{\"id\": 0, \"name\": \"GPU A\", \"totalGlobalMem\": 1000},"
    " {\"name\": \"GPU B\"}],\n\"traceEvents\": ["
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"gemm<a, b>\", \"ts\": 10, \"dur\": 4,"
    " \"args\": {\"grid\": [1, 2, 3], \"stream\": 7}},"
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"gemm<a, b>\", \"ts\": \"x\", \"dur\": 2.5},"
    "{\"args\": {\"Collective name\": \"allreduce\", \"dtype\": \"Half\", \"In msg nelems\": 1024,"
    " \"Group size\": 8}, \"ph\": \"X\", \"cat\": \"kernel\", \"name\":"
    " \"ncclDevKernel_AllReduce_Sum_f16_RING_LL\", \"ts\": 20, \"dur\": 30},"
    "{\"ph\": \"X\", \"cat\": \"gpu_user_annotation\", \"name\": \"ProfilerStep#3\", \"dur\": 100},"
    "{\"ph\": \"X\", \"cat\": \"gpu_user_annotation\", \"name\": \"ProfilerStep#14\", \"dur\": 50},"
    "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"# forward #\", \"dur\": 70},"
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"bad\", \"dur\": -1},"
    "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::add\", \"dur\": 9},"
    "{\"ph\": \"M\", \"name\": \"process_name\", \"args\": {\"name\": \"python\"}}"
    "], \"end\": {}}";

Test(kineto, small_trace_by_hand)
{
    for (int is_packed = 0; is_packed < 2; is_packed++) {
        ty_profile *p = NULL;
        ty_import_report report = {0};
        ty_error error = {0};

        cr_assert_eq(import(small, sizeof small - 1, is_packed, 0, &p, &report, &error), TY_OK,
                     "%s", error.message);
        cr_assert_str_eq(p->machine, "GPU A");
        cr_assert_eq(p->memory_bytes, 1000);
        cr_assert_eq(p->layer_time_count, 4);
        cr_assert_float_eq(find(p, "kernel gemm<a, b>")->forward_s, 3.25e-6, 1e-15);
        cr_assert_float_eq(find(p, "annotation ProfilerStep")->forward_s, 75e-6, 1e-15);
        cr_assert_float_eq(find(p, "host annotation # forward #")->forward_s, 70e-6, 1e-15);
        cr_assert_eq(p->collective_time_count, 1);
        cr_assert_eq(p->collective_times[0].kind, TY_ALL_REDUCE);
        cr_assert_eq(p->collective_times[0].bytes, 2048);
        cr_assert_eq(p->collective_times[0].ranks, 8);
        cr_assert_float_eq(p->collective_times[0].seconds, 30e-6, 1e-15);
        cr_assert(report_has_note(&report, "3 kernels of 9 events: 36.5 us"));
        cr_assert(report_has_note(&report, "1 events without a name or a duration"));
        ty_import_report_clear(&report);
        ty_profile_free(p);
    }
}

/* A prefix without a time is refused; any other one gives its content, with a note. */
Test(kineto, cut_off_traces)
{
    const size_t first_event = (size_t)(strstr(small, "\"stream\": 7}}") + 13 - small);

    for (size_t length = 0; length < sizeof small - 1; length += 7) {
        ty_profile *p = NULL;
        ty_import_report report = {0};
        ty_error error = {0};
        ty_status status = import(small, length, false, 0, &p, &report, &error);
        if (length < first_event) {
            cr_assert_eq(status, TY_EPARSE, "%zu bytes", length);
            cr_assert(strstr(error.message, "byte") != NULL, "%s", error.message);
        } else {
            cr_assert_eq(status, TY_OK, "%zu bytes: %s", length, error.message);
            cr_assert(report_has_note(&report, "the file ends in the middle"));
        }
        ty_import_report_clear(&report);
        ty_profile_free(p);
    }
    for (size_t drop = 1; drop < 40; drop++) { /* a truncated gzip file */
        ty_profile *p = NULL;
        ty_error error = {0};
        ty_status status = import(small, sizeof small - 1, true, drop, &p, NULL, &error);
        cr_assert(status == TY_OK || (status == TY_EPARSE && error.message[0] != '\0'), "%d: %s",
                  status, error.message);
        ty_profile_free(p);
    }
}

Test(kineto, bad_traces_are_refused)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"", "byte 0: found the end of the file"},
        {"7", "byte 0: found '7', expected an object"},
        {"{}", "found no \"traceEvents\""},
        {"{\"traceEvents\": []}", "found 0 events but no kernel"},
        {"[]", "found 0 events but no kernel"},
        {"[{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"forward\", \"dur\": 7}]",
         "found 1 events but no kernel and no annotation of a device"},
        {"{\"traceEvents\": {}}", "found '{', expected an array"},
        {"{\"traceEvents\": [7]}", "found '7', expected an object"},
        {"{\"traceEvents\": [{\"ph\": \"X\"} {", "byte 29: found '{', expected ',' or ']'"},
        {"{\"a\": tru}", "expected a value"},
        {"{\"a\": \"\\x\"}", "found 'x', expected an escaped character"},
        {"{\"a\": 1.2.3}", "expected a finite number"},
        {"{\"a\": 1e999}", "expected a finite number"},
        {"{\"a\": \"\n\"}", "found byte 0x0a, expected the end of a string"},
        {"{\"a\" 1}", "found '1', expected ':'"},
        {"{\"a\": [1,]}", "found ']', expected a value"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_profile *p = NULL;
        ty_error error = {0};
        ty_status status = import(rows[i].text, strlen(rows[i].text), false, 0, &p, NULL, &error);
        cr_assert_eq(status, TY_EPARSE, "row %zu: %s", i, error.message);
        cr_assert(strstr(error.message, rows[i].message) != NULL, "row %zu: %s", i, error.message);
    }
}

/* A million brackets; a name of a million characters; a gzip file with a damaged middle. */
Test(kineto, hostile_traces)
{
    const size_t size = 1000000;
    char *text = malloc(size + 200);
    ty_profile *p = NULL;
    ty_error error = {0};
    size_t length;

    memset(text, '[', size);
    memcpy(text, "{\"x\":", 5);
    cr_assert_eq(import(text, size, true, 0, &p, NULL, &error), TY_EPARSE);
    cr_assert(strstr(error.message, "nested at most 200 deep") != NULL, "%s", error.message);

    length = (size_t)sprintf(text, "[{\"ph\":\"X\",\"cat\":\"kernel\",\"dur\":1,\"name\":\"");
    memset(text + length, 'k', size);
    memcpy(text + length + size, "\"}]", 3);
    cr_assert_eq(import(text, length + size + 3, true, 0, &p, NULL, &error), TY_OK, "%s",
                 error.message);
    cr_assert_lt(strlen(p->layer_times[0].signature), 5000);
    ty_profile_free(p);
    free(text);
}

Test(kineto, missing_file_and_failing_allocations)
{
    char path[64];
    ty_profile *p = NULL;
    ty_error error = {0};
    ty_status status = TY_ENOMEM;
    FILE *file;

    cr_assert_eq(ty_profile_import_kineto("/no/such/trace.json.gz", &p, NULL, &error), TY_EIO);
    temporary_path(path);
    file = fopen(path, "wb");
    fwrite(small, 1, sizeof small - 1, file);
    fclose(file);
    for (long n = 1; status != TY_OK; n++) {
        ty_import_report report = {0};
        ty_memory_fail_after(n);
        status = ty_profile_import_kineto(path, &p, &report, &error);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM, "allocation %ld: %s", n, error.message);
        ty_import_report_clear(&report);
    }
    ty_profile_free(p);
    unlink(path);
}

/* ---- Times of a workload's layers --------------------------------------------------------- */

#define CALL(name, microseconds)                                                                   \
    "{\"ph\": \"X\", \"cat\": \"gpu_user_annotation\", \"name\": \"" name                          \
    "\", \"ts\": 1, \"dur\": " #microseconds ", \"args\": {}},"
#define TRACE(calls) "{\"traceEvents\": [" calls CALL("ProfilerStep", 1) "{}]}"

static ty_workload *open_lenet(void)
{
    ty_workload *w = NULL;
    cr_assert_eq(ty_workload_open("lenet", &w, NULL), TY_OK);
    return w;
}

static ty_profile *trace_of(const char *text)
{
    ty_profile *p = NULL;
    ty_error error = {0};
    cr_assert_eq(import(text, strlen(text), false, 0, &p, NULL, &error), TY_OK, "%s",
                 error.message);
    return p;
}

/* Two calls of a convolution, one of its backward pass; a backward time alone, as of the pooling
 * layer, is not used. */
Test(kineto, annotations_become_layer_times)
{
    ty_workload *w = open_lenet();
    ty_profile *trace = trace_of(TRACE(CALL("conv2d1", 10) CALL("conv2d1", 30) CALL(
                   "conv2d1.backward", 50) CALL("linear1", 7) CALL("linear1.backward", 9))),
               *p = NULL;
    ty_import_report report = {0};
    ty_error error = {0};
    char *signature = NULL;
    double forward_s, backward_s;

    cr_assert_eq(ty_profile_of_trace(trace, w, 64, &p, &report, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(p->layer_time_count, 2);
    cr_assert(report_has_note(&report, "2 of the 8 layers of lenet that take time"));
    cr_assert_eq(ty_layer_signature(w, 0, &signature, NULL), TY_OK);
    cr_assert(ty_profile_layer(p, signature, 64, &forward_s, &backward_s));
    cr_assert_float_eq(forward_s, 20e-6, 1e-15);
    cr_assert_float_eq(backward_s, 50e-6, 1e-15);
    ty_free(signature);
    ty_profile_free(p);
    /* No layer before the last linear one is trained: only that one needs both times. */
    for (uint32_t l = 0; l < 7; l++)
        w->layers[l].is_frozen = true;
    ty_import_report_clear(&report);
    ty_profile_free(trace);
    trace = trace_of(TRACE(CALL("conv2d1", 10)));
    cr_assert_eq(ty_profile_of_trace(trace, w, 64, &p, NULL, &error), TY_OK, "%s", error.message);
    cr_assert_eq(p->layer_times[0].backward_s, 0);
    ty_profile_free(p);
    ty_profile_free(trace);
    ty_workload_free(w);
}

Test(kineto, traces_without_layers_are_refused)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {TRACE(CALL("forward", 10)), "none of the 9 layers of lenet"},
        {TRACE(CALL("conv2d1", 10)), "an annotation \"conv2d1\" but none \"conv2d1.backward\""},
        {TRACE(CALL("conv2d1.backward", 10)), "but none \"conv2d1\""},
    };
    ty_workload *w = open_lenet();

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_profile *trace = trace_of(rows[i].text), *p = NULL;
        ty_error error = {0};
        cr_expect_eq(ty_profile_of_trace(trace, w, 64, &p, NULL, &error), TY_EPARSE);
        cr_expect_neq(strstr(error.message, rows[i].message), NULL, "%s", error.message);
        cr_expect_eq(ty_profile_of_trace(trace, w, 0, &p, NULL, &error), TY_EINVAL);
        ty_profile_free(trace);
    }
    ty_workload_free(w);
}
