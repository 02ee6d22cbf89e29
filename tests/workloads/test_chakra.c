/* Chakra traces: real ones, integers of every variant, round trips, broken and compressed ones. */
#include "chakra.h"
#include "gunzip.h"
#include "imports.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

Test(chakra, real_traces)
{
    ty_import_report report = {0};
    ty_workload *w = import_shared("chakra/custom_ring_allreduce_8npus.0.et", &report);

    /* 35 nodes: 14 sends and receives and 7 reductions of 7 us, in a ring's order */
    cr_assert_str_eq(report.format, "Chakra execution trace");
    cr_assert_eq(w->layer_count, 7);
    for (uint32_t i = 0; i < 7; i++) {
        cr_assert_float_eq(w->layers[i].measured_forward_s, 7e-6, 1e-15);
        cr_assert_eq(w->layers[i].input_count, i > 0);
    }
    cr_assert(report_has_note(&report, "28 nodes that communicate (3.67 MB)"));
    ty_import_report_clear(&report);
    ty_workload_free(w);
}

/* Files that are no workloads are refused with their kind. */
Test(chakra, other_samples_are_refused)
{
    static const struct {
        const char *file, *message;
    } rows[] = {
        {"chakra/all_reduce_8npus_1MB/all_reduce.0.et",
         "found 1 nodes that communicate (1.05 MB) and none that computes"},
        {"chakra/all_reduce_8npus_1MB/all_reduce.7.et", "found 1 nodes that communicate (1.05 MB)"},
        {"chakra/all_to_all_8npus_1MB/all_to_all.3.et", "found 1 nodes that communicate (1.05 MB)"},
        {"chakra/json_trace.tar.gz", "found a tar archive"},
        {"pytorch-et/linear_et.json.gz", "which has no times"},
        {"pytorch-et/resnet_1gpu_et-1.0.3-chakra.json.gz", "which has no times"},
        {"kineto/alexnet.trace.json.gz", "it can be imported as a profile"},
        {"kineto/sampled_rank-0.json.gz", "it can be imported as a profile"},
        {"kineto/amd_mi250_minitoy.json.gz", "it can be imported as a profile"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[512];
        ty_workload *w = NULL;
        ty_error error = {0};
        snprintf(path, sizeof path, MEASURED_DATA "%s", rows[i].file);
        if (!ty_file_exists(path))
            cr_skip_test("%s is not here", path);
        cr_assert_eq(ty_workload_import(path, NULL, &w, NULL, &error), TY_EPARSE, "%s", path);
        cr_assert(strstr(error.message, rows[i].message) != NULL, "%s", error.message);
    }
}

/* ---- Small traces ---- */

static void put_message(ty_text *out, ty_text *message)
{
    ty_wire_put_varint(out, message->length);
    ty_text_append(out, message->data != NULL ? message->data : "", message->length);
    ty_text_clear(message);
}

static void put_fixed(ty_text *text, uint32_t number, unsigned width, uint64_t value)
{
    ty_wire_put_varint(text, (uint64_t)number << 3 | (width == 8 ? 1 : 5));
    for (unsigned i = 0; i < width; i++)
        ty_text_append(text, (const char[]){(char)(value >> (8 * i) & 0xff)}, 1);
}

/* num_ops = 1000 as the variant with this field number. */
static void put_number(ty_text *node, uint32_t variant)
{
    ty_text attribute = {0};
    const float narrow = 1000;
    uint32_t bits;

    memcpy(&bits, &narrow, sizeof bits);
    ty_wire_put_bytes(&attribute, 1, "num_ops", 7);
    if (variant == 3)
        ty_wire_put_double(&attribute, 3, 1000);
    else if (variant == 5)
        put_fixed(&attribute, 5, 4, bits);
    else if (variant == 15 || variant == 17)
        ty_wire_put_uint(&attribute, variant, 2000); /* zigzag */
    else if (variant >= 19)
        put_fixed(&attribute, variant, variant % 4 == 3 ? 4 : 8, 1000);
    else
        ty_wire_put_uint(&attribute, variant, 1000);
    ty_wire_put_bytes(node, 10, attribute.data, attribute.length);
    ty_text_clear(&attribute);
}

static void put_metadata(ty_text *out)
{
    ty_text message = {0};
    ty_wire_put_bytes(&message, 1, "0.0.4", 5);
    put_message(out, &message);
}

Test(chakra, integers_of_every_variant)
{
    static const uint32_t variants[] = {3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25};
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        ty_text out = {0}, node = {0};
        ty_workload *w;
        put_metadata(&out);
        ty_wire_put_bytes(&node, 2, "work", 4); /* number 0, omitted as by a writer */
        ty_wire_put_uint(&node, 3, 4);
        put_number(&node, variants[i]);
        put_message(&out, &node);
        w = import_good("x.et", out.data, out.length, NULL);
        cr_assert_eq(w->layer_count, 1);
        cr_assert_eq(w->layers[0].forward_flop, 1000, "variant %u: %g", variants[i],
                     w->layers[0].forward_flop);
        cr_assert_str_eq(w->layers[0].name, "work");
        ty_workload_free(w);
        ty_text_clear(&out);
    }
}

/* Numbers out of order, packed dependencies, a collective in between, one name twice. */
static void write_small(ty_text *out)
{
    static const struct {
        uint64_t id, type, duration, dependencies[2];
        const char *name;
    } rows[] = {{9, 4, 30, {4, 7}, "c"},
                {2, 4, 10, {0}, "a"},
                {4, 7, 99, {2}, "all_reduce"},
                {7, 4, 20, {2}, "c"}};
    put_metadata(out);
    for (size_t i = 0; i < 4; i++) {
        ty_text node = {0}, packed = {0};
        ty_wire_put_uint(&node, 1, rows[i].id);
        ty_wire_put_bytes(&node, 2, rows[i].name, strlen(rows[i].name));
        ty_wire_put_uint(&node, 3, rows[i].type);
        for (size_t k = 0; k < 2 && rows[i].dependencies[k] != 0; k++)
            ty_wire_put_varint(&packed, rows[i].dependencies[k]);
        if (packed.length > 0)
            ty_wire_put_bytes(&node, 5, packed.data, packed.length);
        ty_wire_put_uint(&node, 4, 12345); /* a missing node */
        ty_wire_put_uint(&node, 7, rows[i].duration);
        put_message(out, &node);
        ty_text_clear(&packed);
    }
}

Test(chakra, small_trace_by_hand)
{
    ty_text out = {0};
    ty_import_report report = {0};
    ty_workload *w;

    write_small(&out);
    w = import_good("x.et", out.data, out.length, &report);
    cr_assert_eq(w->layer_count, 3);
    cr_assert_str_eq(w->layers[0].name, "a");
    cr_assert_str_eq(w->layers[1].name, "node7 c");
    cr_assert_str_eq(w->layers[2].name, "node9 c");
    cr_assert_float_eq(w->layers[1].measured_forward_s, 20e-6, 1e-15);
    cr_assert_eq(w->layers[2].input_count, 2);
    cr_assert(report_has_note(&report, "4 edges of nodes that are not in the file"));
    ty_import_report_clear(&report);
    import_prefixes("x.et", out.data, out.length);
    import_without_memory("x.et", out.data, out.length);
    ty_workload_free(w);
    ty_text_clear(&out);
}

Test(chakra, json_by_hand)
{
    static const char text[] =
        "{\"workload_graph\": [{\"Id\": 3, \"Name\": \"k\", \"NodeType\": 4, \"runtime\": 5, "
        "\"data_deps\": [1], \"is_cpu_op\": false}, {\"Id\": 1, \"Name\": \"op\", \"NodeType\": 4, "
        "\"runtime\": 50, \"data_deps\": [], \"is_cpu_op\": true}, {\"id\": 4, \"name\": \"m\", "
        "\"type\": 4, \"duration_micros\": 2, \"ctrl_deps\": [1], \"is_cpu_op\": false}]}";
    ty_import_report report = {0};
    ty_workload *w = import_good("x.json", text, sizeof text - 1, &report);

    cr_assert_eq(w->layer_count, 2);
    cr_assert_eq(w->layers[1].inputs[0], 0, "the device keeps the order");
    cr_assert_float_eq(w->layers[0].measured_forward_s, 5e-6, 1e-15);
    cr_assert(report_has_note(&report, "1 operators of the host are left out"));
    ty_import_report_clear(&report);
    ty_workload_free(w);
    import_without_memory("x.json", text, sizeof text - 1);
    import_bad("x.json", "{\"workload_graph\": [{\"Id\": -1}]}", 32, TY_EPARSE,
               "x.json:/workload_graph/0/Id: found -1");
    import_bad("x.json", "{\"workload_graph\": [7]}", 23, TY_EPARSE, "expected a node");
}

/* ---- Round trips ---- */

static ty_workload *there_and_back(const ty_workload *w)
{
    char path[] = "/tmp/trainyard-chakra-XXXXXX";
    int file = mkstemp(path);
    ty_workload *back = NULL;
    ty_error error = {0};

    cr_assert_geq(file, 0);
    close(file);
    cr_assert_eq(ty_workload_export_chakra(w, path, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_workload_import(path, NULL, &back, NULL, &error), TY_OK, "%s", error.message);
    unlink(path);
    return back;
}

/* An imported trace is equal after a round trip through either of our formats, including its
 * digest. */
Test(chakra, export_and_import_are_inverse)
{
    ty_text out = {0};
    ty_workload *first, *second, *third = NULL;
    char path[] = "/tmp/trainyard-workload-XXXXXX";
    ty_digest a, b;
    ty_error error = {0};
    int file = mkstemp(path);

    close(file);
    write_small(&out);
    first = import_good("small.et", out.data, out.length, NULL);
    second = there_and_back(first);
    cr_assert_eq(ty_workload_digest(first, &a, &error), TY_OK);
    cr_assert_eq(ty_workload_digest(second, &b, &error), TY_OK);
    cr_assert_str_eq(a.hex, b.hex);
    cr_assert_eq(ty_workload_save(first, path, &error), TY_OK);
    cr_assert_eq(ty_workload_import(path, NULL, &third, NULL, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_workload_digest(third, &b, &error), TY_OK);
    cr_assert_str_eq(a.hex, b.hex);
    unlink(path);
    ty_workload_free(first);
    ty_workload_free(second);
    ty_workload_free(third);
    ty_text_clear(&out);
}

static ty_workload *open_named(const char *name)
{
    ty_workload *w = NULL;
    ty_error error = {0};
    cr_assert_eq(ty_workload_open(name, &w, &error), TY_OK, "%s", error.message);
    return w;
}

/* Kinds, attributes, optimizer, frozen layers and everything else. */
Test(chakra, networks_come_back_equal)
{
    static const char *const names[] = {"resnet18",   "densenet121", "gnmt-8",
                                        "mlp",        "gpt-tiny",    "transfer-resnet50",
                                        "fedavg-cnn", "es-humanoid"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ty_workload *w = open_named(names[i]), *back = there_and_back(w);
        ty_digest a, b;
        cr_assert_eq(ty_workload_digest(w, &a, NULL), TY_OK);
        cr_assert_eq(ty_workload_digest(back, &b, NULL), TY_OK);
        cr_assert_str_eq(a.hex, b.hex, "%s", names[i]);
        ty_workload_free(w);
        ty_workload_free(back);
    }
}

/* The trace of a workload, in memory. */
static char *exported(const ty_workload *w, size_t *length)
{
    char path[] = "/tmp/trainyard-chakra-XXXXXX", *bytes = NULL;
    int file = mkstemp(path);
    ty_error error = {0};

    cr_assert_geq(file, 0);
    close(file);
    cr_assert_eq(ty_workload_export_chakra(w, path, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_file_read(path, 0, &bytes, length, &error), TY_OK, "%s", error.message);
    unlink(path);
    return bytes;
}

/* In nodes changed by another program, the nodes' figures count: kinds are lost, costs are not. */
Test(chakra, changed_networks_keep_their_costs)
{
    static const char *const names[] = {"resnet18", "densenet121", "gnmt-8", "mlp"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ty_workload *w = open_named(names[i]), *back;
        size_t length;
        char *bytes = exported(w, &length);
        /* an additional memory node without effect: id 4000000, type 2 */
        static const char node[] = "\x07\x08\x80\x92\xf4\x01\x18\x02";
        bytes = ty_resize(bytes, length + sizeof node, 1);
        memcpy(bytes + length, node, sizeof node);
        back = import_good("changed.et", bytes, length + sizeof node - 1, NULL);
        cr_assert_eq(back->layer_count, w->layer_count);
        cr_assert_str_eq(back->name, w->name);
        cr_assert_str_eq(back->source, w->source);
        cr_assert_eq(back->global_batch, w->global_batch);
        for (uint32_t k = 0; k < w->layer_count; k++) {
            const ty_layer *x = &w->layers[k], *y = &back->layers[k];
            cr_assert_eq(y->kind, TY_LAYER_OPAQUE);
            cr_assert_str_eq(x->name, y->name);
            cr_assert_eq(x->parameter_bytes, y->parameter_bytes);
            cr_assert_eq(x->output_bytes, y->output_bytes);
            cr_assert_eq(x->forward_flop, y->forward_flop);
            cr_assert_eq(x->backward_flop, y->backward_flop);
            cr_assert_eq(x->input_count, y->input_count);
            for (uint32_t n = 0; n < x->input_count; n++)
                cr_assert_eq(x->inputs[n], y->inputs[n]);
        }
        ty_free(bytes);
        ty_workload_free(w);
        ty_workload_free(back);
    }
}

Test(chakra, exported_ones_survive_failing_allocations)
{
    ty_workload *w = open_named("mlp");
    size_t length;
    char *bytes = exported(w, &length);

    import_without_memory("mlp.et", bytes, length);
    ty_free(bytes);
    ty_workload_free(w);
}

/* ---- Packed files ---- */

Test(gunzip, bombs_and_broken_files_are_refused)
{
    const size_t size = 300u << 20;
    char path[] = "/tmp/trainyard-bomb-XXXXXX", *zeros = calloc(1, 1 << 20), *bytes;
    int file = mkstemp(path);
    gzFile packed = gzopen(path, "wb9");
    ty_workload *w = NULL;
    ty_error error = {0};
    size_t length;

    close(file);
    for (size_t i = 0; i < size; i += 1 << 20)
        cr_assert_eq(gzwrite(packed, zeros, 1 << 20), 1 << 20);
    gzclose(packed);
    free(zeros);
    cr_assert_eq(ty_workload_import(path, NULL, &w, NULL, &error), TY_EPARSE);
    cr_assert(strstr(error.message, "once unpacked") != NULL, "%s", error.message);

    cr_assert_eq(ty_file_read(path, 0, &bytes, &length, &error), TY_OK);
    cr_assert(ty_is_gzip(bytes, length));
    length = 1000;
    cr_assert_eq(ty_gunzip(path, &bytes, &length, &error), TY_EPARSE);
    cr_assert(strstr(error.message, "it ends too early") != NULL, "%s", error.message);
    bytes[12] ^= 0x55;
    cr_assert_eq(ty_gunzip(path, &bytes, &length, &error), TY_EPARSE);
    ty_free(bytes);
    unlink(path);
}

static size_t pack(const char *text, char *out, size_t room)
{
    z_stream stream = {.next_in = (Bytef *)text,
                       .avail_in = (uInt)strlen(text),
                       .next_out = (Bytef *)out,
                       .avail_out = (uInt)room};

    cr_assert_eq(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
    cr_assert_eq(deflate(&stream, Z_FINISH), Z_STREAM_END);
    deflateEnd(&stream);
    return room - stream.avail_out;
}

/* RFC 1952: consecutive members form one text. Zeros after them are padding, anything else is
 * reported. */
Test(gunzip, members_and_what_is_behind_them)
{
    static const struct {
        const char *behind;
        size_t length;
        ty_status status;
    } rows[] = {{"", 0, TY_OK},
                {"\0\0\0", 3, TY_OK},
                {"\0x", 2, TY_EPARSE},
                {"more", 4, TY_EPARSE},
                {"\x1f\x8b\x08", 3, TY_EPARSE}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *bytes = ty_alloc(1000, 1);
        size_t length = pack("one and ", bytes, 400);
        ty_error error = {0};
        ty_status status;
        length += pack("two", bytes + length, 400);
        memcpy(bytes + length, rows[i].behind, rows[i].length);
        length += rows[i].length;
        status = ty_gunzip("f", &bytes, &length, &error);
        cr_assert_eq(status, rows[i].status, "row %zu: %s", i, error.message);
        cr_assert(status != TY_OK || (length == 11 && strcmp(bytes, "one and two") == 0), "row %zu",
                  i);
        ty_free(bytes);
    }
}
