/* ONNX models: real ones against the zoo, small ones written here, broken ones. */
#include "import.h"
#include "imports.h"
#include "wire.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Test(onnx, real_models_have_the_published_figures)
{
    static const struct {
        const char *file;
        uint32_t layers;
        uint64_t parameters; /* torchvision's resnet50, vgg19, squeezenet1_1 */
        double gmac;
    } rows[] = {
        {"onnx/light_resnet50.onnx", 4 + 16 * 10 + 4 * 2 + 4, 25557032, 4.089},
        {"onnx/light_vgg19.onnx", 44, 143667240, 19.632},
        {"onnx/light_squeezenet.onnx", 66, 1235496, 0.349},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_import_report report = {0};
        ty_workload *w = import_shared(rows[i].file, &report);
        double gmac = ty_workload_forward_flop(w, 0, w->layer_count) / 2e9;
        cr_assert_str_eq(report.format, "ONNX");
        cr_assert_eq(w->layer_count, rows[i].layers, "%s: %u layers", rows[i].file, w->layer_count);
        cr_assert_eq(ty_workload_parameter_bytes(w, 0, w->layer_count), 4 * rows[i].parameters);
        cr_assert_lt(fabs(gmac - rows[i].gmac), 0.001, "%s: %g GMAC", rows[i].file, gmac);
        cr_assert(report_has_note(&report, "taken as the loss"));
        for (uint32_t k = 0; k < w->layer_count; k++)
            cr_assert_neq(w->layers[k].kind, TY_LAYER_OPAQUE, "%s", w->layers[k].name);
        ty_import_report_clear(&report);
        ty_workload_free(w);
    }
}

/* The same model from two sources: every layer costs the same. */
Test(onnx, vgg19_is_the_zoos)
{
    ty_workload *w = import_shared("onnx/light_vgg19.onnx", NULL), *zoo = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_workload_open("vgg19", &zoo, &error), TY_OK, "%s", error.message);
    cr_assert_eq(w->layer_count, zoo->layer_count);
    for (uint32_t i = 0; i < w->layer_count; i++) {
        char *a = NULL, *b = NULL;
        cr_assert_eq(ty_layer_signature(w, i, &a, &error), TY_OK);
        cr_assert_eq(ty_layer_signature(zoo, i, &b, &error), TY_OK);
        cr_assert_str_eq(a, b);
        cr_assert_eq(w->layers[i].stash_bytes, zoo->layers[i].stash_bytes);
        ty_free(a);
        ty_free(b);
    }
    ty_workload_free(w);
    ty_workload_free(zoo);
}

/* ---- A writer of small models ---- */

typedef struct model {
    ty_text graph;
} model;

static void put_text(ty_text *text, uint32_t number, const char *value)
{
    ty_wire_put_bytes(text, number, value, strlen(value));
}

static void put_message(ty_text *text, uint32_t number, ty_text *message)
{
    ty_wire_put_bytes(text, number, message->data != NULL ? message->data : "", message->length);
    ty_text_clear(message);
}

/* Sizes end with -1; 0 means a symbol. @param number 11: input, 12: output, 13: value_info */
static void put_value(model *m, uint32_t number, const char *name, const int64_t *sizes)
{
    ty_text shape = {0}, tensor = {0}, type = {0}, info = {0};

    for (; *sizes >= 0; sizes++) {
        ty_text dimension = {0};
        if (*sizes > 0)
            ty_wire_put_uint(&dimension, 1, (uint64_t)*sizes);
        else
            put_text(&dimension, 2, "N");
        put_message(&shape, 1, &dimension);
    }
    ty_wire_put_uint(&tensor, 1, 1);
    put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_text(&info, 1, name);
    put_message(&info, 2, &type);
    put_message(&m->graph, number, &info);
}

/* A weight without its numbers, as with external data; or integers with them. */
static void put_tensor(ty_text *text, uint32_t number, const char *name, const int64_t *sizes,
                       const int64_t *integers)
{
    ty_text tensor = {0};
    uint64_t count = 1;

    for (; *sizes >= 0; sizes++) {
        ty_wire_put_uint(&tensor, 1, (uint64_t)*sizes);
        count *= (uint64_t)*sizes;
    }
    ty_wire_put_uint(&tensor, 2, integers != NULL ? 7 : 1);
    for (uint64_t i = 0; integers != NULL && i < count; i++)
        ty_wire_put_uint(&tensor, 7, (uint64_t)integers[i]);
    put_text(&tensor, 8, name);
    put_message(text, number, &tensor);
}

#define SIZES(...) ((const int64_t[]){__VA_ARGS__, -1})
static void put_weight(model *m, const char *name, const int64_t *sizes)
{
    put_tensor(&m->graph, 5, name, sizes, NULL);
}

/* "Conv x w b > y ; group=2 ; strides=2,2 ; auto_pad=SAME_UPPER" */
static void put_node(model *m, const char *line)
{
    char copy[256], *rest = copy, *word, *more = NULL;
    ty_text node = {0};
    uint32_t number = 1;
    bool is_first = true;

    snprintf(copy, sizeof copy, "%s", line);
    while ((word = strtok_r(rest, " ", &more)) != NULL) {
        char *equals = strchr(word, '=');
        rest = NULL;
        if (is_first)
            put_text(&node, 4, word);
        else if (strcmp(word, ">") == 0)
            number = 2;
        else if (equals == NULL)
            put_text(&node, number, strcmp(word, "-") == 0 ? "" : word);
        else {
            ty_text attribute = {0};
            *equals = '\0';
            put_text(&attribute, 1, word);
            if (equals[1] >= 'A')
                put_text(&attribute, 4, equals + 1);
            else if (strchr(equals + 1, ',') == NULL)
                ty_wire_put_uint(&attribute, 3, (uint64_t)strtoll(equals + 1, NULL, 10));
            else
                for (char *at = equals; at != NULL; at = strchr(at + 1, ','))
                    ty_wire_put_uint(&attribute, 8, (uint64_t)strtoll(at + 1, NULL, 10));
            put_message(&node, 5, &attribute);
        }
        is_first = false;
    }
    put_message(&m->graph, 1, &node);
}

static void finish(model *m, ty_text *out)
{
    ty_text opset = {0};
    ty_wire_put_uint(out, 1, 8);
    put_text(out, 2, "a test");
    put_message(out, 7, &m->graph);
    ty_wire_put_uint(&opset, 2, 17);
    put_message(out, 8, &opset);
}

/* A residual block with a grouped convolution, SAME padding, a shape that operators compute, a
 * weight used twice, an unknown operator, two outputs of a split. */
static void write_block(ty_text *out)
{
    model m = {0};

    put_value(&m, 11, "x", SIZES(0, 4, 9, 9));
    put_value(&m, 13, "part", SIZES(0, 3));
    put_value(&m, 13, "rest", SIZES(0, 2));
    put_value(&m, 12, "end", SIZES(0, 5));
    put_weight(&m, "w1", SIZES(8, 2, 3, 3));
    put_weight(&m, "b1", SIZES(8));
    put_weight(&m, "w2", SIZES(8, 8, 3, 3));
    put_weight(&m, "s", SIZES(8));
    put_weight(&m, "m", SIZES(8));
    put_weight(&m, "fc", SIZES(200, 5));
    put_weight(&m, "shift", SIZES(5));
    put_tensor(&m.graph, 5, "zero", SIZES(1), (const int64_t[]){0});
    put_tensor(&m.graph, 5, "minus", SIZES(1), (const int64_t[]){-1});
    put_node(&m, "Conv x w1 b1 > c1 group=2 strides=2,2 auto_pad=SAME_UPPER");
    put_node(&m, "BatchNormalization c1 s s m m > n1");
    put_node(&m, "Relu n1 > r1");
    put_node(&m, "Conv r1 w2 > c2 pads=1,1,1,1 kernel_shape=3,3");
    put_node(&m, "Conv c2 w2 > c3 pads=1,1,1,1");
    put_node(&m, "Add c3 r1 > a1");
    put_node(&m, "Shape a1 > shape");
    put_node(&m, "Gather shape zero > first");
    put_node(&m, "Concat first minus > wanted axis=0");
    put_node(&m, "Reshape a1 wanted > flat");
    put_node(&m, "Dropout flat > d mask");
    put_node(&m, "MatMul d fc > y");
    put_node(&m, "Add y shift > z");
    put_node(&m, "Split z > part rest");
    put_node(&m, "Mystery part rest > end");
    put_node(&m, "Relu d > unused");
    finish(&m, out);
}

Test(onnx, small_model_by_hand)
{
    static const struct {
        const char *name;
        ty_layer_kind kind;
        uint64_t parameters, output;
        double multiply_adds;
    } rows[] = {
        {"Conv c1", TY_LAYER_CONV2D, 8 * 18 + 8, 8 * 25, 8 * 25 * 18},
        {"BatchNormalization n1", TY_LAYER_BATCH_NORM, 16, 8 * 25, 0},
        {"Relu r1", TY_LAYER_RELU, 0, 8 * 25, 0},
        {"Conv c2", TY_LAYER_CONV2D, 8 * 72, 8 * 25, 8 * 25 * 72},
        {"Conv c3", TY_LAYER_OPAQUE, 0, 8 * 25, 8 * 25 * 72}, /* its weights count at c2 */
        {"Add a1", TY_LAYER_ADD, 0, 8 * 25, 0},
        {"Reshape flat", TY_LAYER_FLATTEN, 0, 200, 0},
        {"MatMul y", TY_LAYER_LINEAR, 1000, 5, 1000},
        {"Add z", TY_LAYER_OPAQUE, 5, 5, 0},
        {"Split part", TY_LAYER_OPAQUE, 0, 3, 0},
        {"Split rest", TY_LAYER_OPAQUE, 0, 2, 0},
        {"Mystery end", TY_LAYER_OPAQUE, 0, 5, 0},
    };
    ty_import_report report = {0};
    ty_text text = {0};
    ty_workload *w;

    write_block(&text);
    w = import_good("block.onnx", text.data, text.length, &report);
    cr_assert_str_eq(w->name, "block");
    cr_assert_eq(w->layer_count, sizeof rows / sizeof rows[0], "%u layers", w->layer_count);
    for (uint32_t i = 0; i < w->layer_count; i++) {
        const ty_layer *l = &w->layers[i];
        cr_assert_str_eq(l->name, rows[i].name);
        cr_assert_eq(l->kind, rows[i].kind, "%s", l->name);
        cr_assert_eq(l->parameter_bytes, 4 * rows[i].parameters, "%s: %llu", l->name,
                     (unsigned long long)l->parameter_bytes);
        cr_assert_eq(l->output_bytes, 4 * rows[i].output, "%s", l->name);
        cr_assert_eq(l->forward_flop, 2 * rows[i].multiply_adds, "%s: %g", l->name,
                     l->forward_flop);
    }
    cr_assert(report_has_note(&report, "2 operators that are not known, 'Split' first"));
    ty_import_report_clear(&report);
    import_prefixes("block.onnx", text.data, text.length);
    import_without_memory("block.onnx", text.data, text.length);
    ty_workload_free(w);
    ty_text_clear(&text);
}

/* Two inputs of a batch of four; both are views of the batch. */
Test(onnx, several_inputs)
{
    model m = {0};
    ty_text text = {0};
    ty_workload *w;

    put_value(&m, 11, "a", SIZES(4, 2));
    put_value(&m, 11, "b", SIZES(4, 2));
    put_value(&m, 12, "c", SIZES(4, 2));
    put_node(&m, "Add a b > c");
    finish(&m, &text);
    w = import_good("add.onnx", text.data, text.length, NULL);
    cr_assert_eq(w->input.dimensions[0], 4);
    cr_assert_eq(w->layer_count, 3);
    cr_assert_eq(w->layers[2].kind, TY_LAYER_ADD);
    cr_assert_eq(w->layers[2].output_bytes, 8);
    cr_assert_eq(w->layers[0].stash_bytes, 0);
    ty_workload_free(w);
    ty_text_clear(&text);
    ty_workload_free(import_shared("onnx/add.onnx", NULL));
}

Test(onnx, sequence_of_symbolic_length)
{
    model m = {0};
    ty_text text = {0};
    ty_workload *w = NULL;
    ty_error error = {0};

    put_value(&m, 11, "ids", SIZES(0, 0));
    put_value(&m, 12, "y", SIZES(0, 0, 6));
    put_weight(&m, "table", SIZES(50, 8));
    put_weight(&m, "w", SIZES(8, 6));
    put_node(&m, "Gather table ids > e");
    put_node(&m, "MatMul e w > y");
    finish(&m, &text);
    import_bad("s.onnx", text.data, text.length, TY_EPARSE, "no size of dimension 1; sequence=N");
    cr_assert_eq(ty_import_bytes("s.onnx", text.data, text.length,
                                 &(ty_import_options){.sequence = 7, .batch = 3}, &w, NULL, &error),
                 TY_OK, "%s", error.message);
    cr_assert_eq(w->layers[0].parameter_bytes, 1600);
    cr_assert_eq(w->layers[0].output_bytes, 4 * 7 * 8);
    cr_assert_eq(w->layers[1].forward_flop, 2 * 7 * 8 * 6);
    cr_assert_eq(w->global_batch, 3);
    ty_workload_free(w);
    ty_text_clear(&text);
}

Test(onnx, bad_models_are_refused)
{
    static const struct {
        const char *nodes[3], *message;
        int64_t input[5];
    } rows[] = {
        {{"Relu y > y"}, "nothing before it makes", {1, 4, -1}},
        {{"Relu nowhere > y"}, "nothing before it makes", {1, 4, -1}},
        {{"Relu x > x", "Relu x > y"}, "made before", {1, 4, -1}},
        {{"Relu x >"}, "found no operator between", {1, 4, -1}},
        {{"Conv x w > y"}, "found channels that differ", {1, 3, 8, -1}},
        {{"Conv x w > y"}, "found a window that does not fit", {1, 2, 2, 2}},
        {{"Conv x w > y strides=0,1"}, "found a window that does not fit", {1, 2, 8, 8}},
        {{"Conv x w > y group=3"}, "found channels that differ", {1, 2, 8, 8}},
        {{"Gemm x v > y"}, "found features that differ", {1, 5, -1}},
        {{"Reshape x - > q", "Relu q > y"}, "found a shape that does not follow", {1, 5, -1}},
        {{"Concat x v > y axis=7"}, "found shapes that do not fit", {1, 5, -1}},
        {{"Transpose x > q perm=0,0,3", "Relu q > y"},
         "found a permutation that does not fit",
         {1, 5, -1}},
        {{"Relu x > y"},
         "the batch has no sensible shape",
         {1, 2147483647, 2147483647, 2147483647}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t sizes[6] = {0};
        model m = {0};
        ty_text text = {0};
        size_t rank = 0;
        while (rank < 4 && rows[i].input[rank] > 0)
            rank++;
        if (strncmp(rows[i].nodes[0], "Conv", 4) == 0)
            rank = 4;
        for (size_t k = 0; k < rank; k++)
            sizes[k] = rows[i].input[k] > 0 ? rows[i].input[k] : 8;
        sizes[rank] = -1;
        put_value(&m, 11, "x", sizes);
        put_weight(&m, "w", SIZES(4, 2, 3, 3));
        put_weight(&m, "v", SIZES(4, 2));
        put_value(&m, 12, "y", SIZES(1));
        for (size_t k = 0; rows[i].nodes[k] != NULL; k++)
            put_node(&m, rows[i].nodes[k]);
        finish(&m, &text);
        import_bad(rows[i].nodes[0], text.data, text.length, TY_EPARSE, rows[i].message);
        ty_text_clear(&text);
    }
}

/* Large lengths and counts in a few bytes. */
Test(onnx, hostile_bytes_are_refused_at_once)
{
    static const struct {
        const char *bytes;
        size_t length;
        const char *message;
    } rows[] = {
        {"\x08\x08\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 12, "byte 12: found a broken"},
        {"\x08\x08\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 14, "found a broken"},
        {"\x08\x08\x3a\x02\x0b\x00", 6, "found a broken"},
        {"\x08\x08\x12\x01x", 5, "found no graph"},
        {"\x08\x08\x3a\x00", 4, "found no input of the graph"},
        {"\x08\x08\x3a\x02\x0a\x00", 6, "found no input of the graph"},
        {"\x08\x08\x3a\x0b\x2a\x09\x08\xff\xff\xff\xff\xff\x01\x42\x00", 15, "found no input"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        import_bad("x.onnx", rows[i].bytes, rows[i].length, TY_EPARSE, rows[i].message);
}
