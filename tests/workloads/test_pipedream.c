/* PipeDream profiles: real ones against sums made with awk, small ones by hand, bad ones. */
#include "import.h"
#include "imports.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define FIGURES(forward, backward, out, parameters)                                                \
    " -- forward_compute_time=" forward ", backward_compute_time=" backward                        \
    ", activation_size=" out ", parameter_size=" parameters "\n"

/* Sums of the files' figures, without the lines called Input, with awk: ms, parameter bytes / 4.
 * Layers are the lines without inputs, sizes and unread outputs, counted by hand. */
Test(pipedream, real_profiles)
{
    static const struct {
        const char *file;
        uint32_t batch, layers;
        uint64_t parameters;
        double forward_ms, backward_ms;
    } rows[] = {
        {"pipedream/alexnet.graph.txt", 256, 21, 61100840, 44.801, 40.520},
        {"pipedream/vgg16.graph.txt", 128, 39, 138357544, 233.902, 438.633},
        {"pipedream/resnet50.graph.txt", 128, 175, 25557032, 182.488, 260.931},
        {"pipedream/gnmt.graph.txt", 32, 32, 193765952, 33.533, 55.883},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_import_report report = {0};
        ty_workload *w = import_shared(rows[i].file, &report);
        double forward = 0, backward = 0;

        cr_assert_str_eq(report.format, "PipeDream graph.txt");
        cr_assert_eq(w->global_batch, rows[i].batch, "%s: batch %u", rows[i].file, w->global_batch);
        cr_assert_eq(w->layer_count, rows[i].layers, "%s: %u layers", rows[i].file, w->layer_count);
        cr_assert_eq(ty_workload_parameter_bytes(w, 0, w->layer_count), 4 * rows[i].parameters);
        for (uint32_t k = 0; k < w->layer_count; k++) {
            forward += w->layers[k].measured_forward_s * rows[i].batch * 1e3;
            backward += w->layers[k].measured_backward_s * rows[i].batch * 1e3;
        }
        cr_assert_lt(fabs(forward - rows[i].forward_ms), 1e-2, "%s: %.6f ms", rows[i].file,
                     forward);
        cr_assert_lt(fabs(backward - rows[i].backward_ms), 1e-2, "%s: %.6f ms", rows[i].file,
                     backward);
        ty_import_report_clear(&report);
        ty_workload_free(w);
    }
}

/* Two branches out of order, names with commas, brackets and dashes, a shape, an unread state. */
static const char small[] =
    "node4 -- Linear(in_features=3, out_features=2, bias=True)" FIGURES("2", "4.5", "16.000", "32.0") "node1 -- Input0" FIGURES("7", "0", "24", "0") "node2 -- Odd( (a): X -- Y[1, 2] )" FIGURES(
        "1", "3", "[24.0; 8.0]",
        "0") "node3 -- Size(0)" FIGURES("0", "0", "4",
                                        "0") "node5 -- __getitem__(1)" FIGURES("0", "0", "8",
                                                                               "0") "node6 -- "
                                                                                    "Add" FIGURES(
                                                                                        "0", "0",
                                                                                        "16",
                                                                                        "0") "\tnod"
                                                                                             "e1 "
                                                                                             "-- "
                                                                                             "node2"
                                                                                             "\n\tn"
                                                                                             "ode2 "
                                                                                             "-- "
                                                                                             "node3"
                                                                                             "\n\tn"
                                                                                             "ode3 "
                                                                                             "-- "
                                                                                             "node4"
                                                                                             "\n\tn"
                                                                                             "ode2 "
                                                                                             "-- "
                                                                                             "node4"
                                                                                             "\n\tn"
                                                                                             "ode2 "
                                                                                             "-- "
                                                                                             "node5"
                                                                                             "\n"
                                                                                             "\tnod"
                                                                                             "e4 "
                                                                                             "-- "
                                                                                             "node6"
                                                                                             "\n\tn"
                                                                                             "ode1 "
                                                                                             "-- "
                                                                                             "node6"
                                                                                             "\n\tn"
                                                                                             "ode2 "
                                                                                             "-- "
                                                                                             "node6"
                                                                                             "\n\tn"
                                                                                             "ode6 "
                                                                                             "-- "
                                                                                             "node7"
                                                                                             "\n"
                                                                                             "node7"
                                                                                             " -- "
                                                                                             "Linea"
                                                                                             "r(in_"
                                                                                             "featu"
                                                                                             "res="
                                                                                             "2, "
                                                                                             "out_"
                                                                                             "featu"
                                                                                             "res="
                                                                                             "4, "
                                                                                             "bias="
                                                                                             "False"
                                                                                             ")" FIGURES(
                                                                                                 "1",
                                                                                                 "1",
                                                                                                 "3"
                                                                                                 "2",
                                                                                                 "3"
                                                                                                 "2");

Test(pipedream, small_profile_by_hand)
{
    ty_import_report report = {0};
    ty_workload *w = import_good("x/toy.graph.txt", small, sizeof small - 1, &report);

    cr_assert_eq(w->global_batch, 2);
    cr_assert_eq(w->input.dimensions[0], 3);
    cr_assert_eq(w->layer_count, 4);
    cr_assert_str_eq(w->layers[0].name, "node2 Odd( (a): X -- Y[1, 2] )");
    cr_assert_eq(w->layers[0].output_bytes, 16);
    cr_assert_eq(w->layers[0].input_count, 0);
    cr_assert_float_eq(w->layers[1].measured_backward_s, 2.25e-3, 1e-12);
    cr_assert_eq(w->layers[1].input_count, 1, "the shape adds nothing");
    cr_assert_eq(w->layers[2].input_count, 2);
    cr_assert_eq(w->layers[2].inputs[0], 0);
    cr_assert_eq(w->layers[2].inputs[1], 1);
    cr_assert_eq(w->layers[3].parameter_bytes, 32);
    cr_assert(report_has_note(&report, "1 outputs that nothing reads"));
    cr_assert(report_has_note(&report, "7 ms of loading"));
    ty_import_report_clear(&report);
    ty_workload_free(w);
}

Test(pipedream, bad_profiles_are_refused_with_the_line)
{
#define A "node1 -- A" FIGURES("1", "1", "4", "0")
#define B "node2 -- B" FIGURES("1", "1", "4", "0")
    static const struct {
        const char *text, *message;
    } rows[] = {
        {A "node2\n", "x.txt:2: found 'node2', expected nodeN -- operator -- figures"},
        {A "nodeX -- B" FIGURES("1", "1", "4", "0"), "x.txt:2: "},
        {"node1 -- A" FIGURES("-1", "1", "4", "0"), "x.txt:1: found 'forward_compute_time=-1'"},
        {"node1 -- A" FIGURES("nan", "1", "4", "0"), "found 'forward_compute_time=nan'"},
        {"node1 -- A" FIGURES("1e400", "1", "4", "0"), "found 'forward_compute_time=1e400'"},
        {"node1 -- A" FIGURES("1", "1", "[4; ", "0"), "found 'activation_size=[4;'"},
        {"node1 -- A" FIGURES("1", "1", "4]", "0"), "found 'activation_size=4]'"},
        {"node1 -- A -- forward_compute_time=1\n", "expected four figures"},
        {"node1 -- A -- forward_compute_time=1, forward_compute_time=1\n", "each once"},
        {A "\tnode1 -- node9\n", "found an edge of node9, which has no line"},
        {A "\tnode1 node9\n", "x.txt:2: found 'node1 node9', expected an edge"},
        {A A, "found node1 twice"},
        {A B "\tnode1 -- node2\n\tnode2 -- node1\n", "found a cycle"},
        {A "\tnode1 -- node1\n", "found a cycle that node1 is on or behind"},
        {"node1 -- A" FIGURES("0", "0", "4", "0"), "found no operator with a time or parameters"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        import_bad("x.txt", rows[i].text, strlen(rows[i].text), TY_EPARSE, rows[i].message);
}

/* Two heads meet in a layer without cost; the names do not reveal the batch. */
Test(pipedream, several_ends)
{
    static const char text[] =
        A B "node3 -- C" FIGURES("2", "2", "4", "8") "\tnode1 -- node2\n\tnode1 -- node3\n";
    ty_import_report report = {0};
    ty_workload *w = import_good("x.txt", text, sizeof text - 1, &report);

    cr_assert_eq(w->layer_count, 4);
    cr_assert_str_eq(w->layers[3].name, "opaque4");
    cr_assert_eq(w->layers[3].input_count, 2);
    cr_assert(report_has_note(&report, "2 ends are joined"));
    cr_assert(report_has_note(&report, "taken as one sample"));
    ty_import_report_clear(&report);
    ty_workload_free(w);
}

/* Twelve rows of an embedding: samples, or tokens of samples, which an option must specify. Times
 * are those of a mini-batch, so a sample's time is that of all its tokens. */
Test(pipedream, rows_are_samples_or_tokens)
{
    static const char text[] = "node1 -- Embedding(100, 8)" FIGURES(
        "12", "24", "384", "3200") "node2 -- Linear(in_features=8, out_features=4, "
                                   "bias=True)" FIGURES("6", "6", "192",
                                                        "144") "\tnode1 -- node2\n";
    static const struct {
        uint64_t sequence;
        uint32_t batch;
        double forward_s;
    } rows[] = {{1, 12, 1e-3}, {3, 4, 3e-3}, {12, 1, 12e-3}};

    import_bad(
        "x.txt", text, sizeof text - 1, TY_EPARSE,
        "found an Embedding of 12 rows, which may be samples or tokens, expected sequence=N");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const ty_import_options options = {.sequence = rows[i].sequence};
        ty_workload *w = NULL;
        ty_error error = {0};
        cr_assert_eq(ty_import_bytes("x.txt", text, sizeof text - 1, &options, &w, NULL, &error),
                     TY_OK, "%s", error.message);
        cr_expect_eq(w->global_batch, rows[i].batch);
        cr_expect_eq(w->tokens_per_sample, rows[i].sequence > 1 ? rows[i].sequence : 0);
        cr_expect_float_eq(w->layers[0].measured_forward_s, rows[i].forward_s, 1e-12);
        ty_workload_free(w);
    }
    for (uint64_t sequence = 5; sequence <= 24; sequence += 19) {
        const ty_import_options options = {.sequence = sequence};
        ty_workload *w = NULL;
        ty_error error = {0};
        cr_expect_eq(ty_import_bytes("x.txt", text, sizeof text - 1, &options, &w, NULL, &error),
                     TY_EINVAL);
        cr_expect(strstr(error.message, "expected a divisor of the 12 rows") != NULL, "%s",
                  error.message);
    }
}

Test(pipedream, cut_off_files_and_failing_allocations)
{
    import_prefixes("x.txt", small, sizeof small - 1);
    import_without_memory("x.txt", small, sizeof small - 1);
}
