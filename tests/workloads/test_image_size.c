/* Models at other image sizes, against the same models built at those sizes. */
#include "builder.h"
#include "zoo.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static ty_workload *open_one(const char *name)
{
    ty_workload *w = NULL;
    ty_error error = {0};
    cr_assert_eq(ty_workload_open(name, &w, &error), TY_OK, "%s: %s", name, error.message);
    return w;
}

static void assert_same(const ty_workload *a, const ty_workload *b, const char *what)
{
    ty_digest first, second;
    cr_assert_eq(ty_workload_digest(a, &first, NULL), TY_OK);
    cr_assert_eq(ty_workload_digest(b, &second, NULL), TY_OK);
    cr_assert_str_eq(first.hex, second.hex, "%s", what);
}

/* Replaces the value of `key`, up to the end of its line, by `text`. */
static char *with_member(const char *document, const char *key, const char *text)
{
    const char *start = strstr(document, key), *end;
    ty_text out = {0};
    char *result = NULL;

    cr_assert_not_null(start, "%s", key);
    start += strlen(key);
    end = strchr(start, '\n');
    ty_text_append(&out, document, (size_t)(start - document));
    ty_text_addf(&out, "%s,%s", text, end);
    cr_assert_eq(ty_text_take(&out, &result, NULL), TY_OK);
    return result;
}

/* The model that its file would give with images of that size. */
static ty_workload *build_at(const char *name, uint32_t channels, uint32_t height, uint32_t width,
                             uint64_t sample_bytes)
{
    const ty_zoo_overrides none = {0};
    ty_json_document *document = NULL;
    ty_workload *w = NULL;
    ty_error error = {0};
    char file[64], shape[64], bytes[32], *path = NULL, *text = NULL, *sized, *whole;
    size_t length;

    snprintf(file, sizeof file, "%s.json", name);
    cr_assert_eq(ty_data_path("workloads/zoo", file, &path, NULL), TY_OK);
    cr_assert_eq(ty_file_read(path, 0, &text, &length, NULL), TY_OK);
    snprintf(shape, sizeof shape, " [%u, %u, %u]", channels, height, width);
    snprintf(bytes, sizeof bytes, " %llu", (unsigned long long)sample_bytes);
    sized = with_member(text, "\"input\":", shape);
    whole = with_member(sized, "\"sample_bytes\":", bytes);
    cr_assert_eq(ty_json_parse(whole, strlen(whole), name, &document, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_zoo_build(ty_json_root(document), &none, &w, &error), TY_OK, "%s: %s", name,
                 error.message);
    ty_json_free(document);
    ty_free(whole);
    ty_free(sized);
    ty_free(text);
    ty_free(path);
    return w;
}

/* Rebuilt for its own size, a model is the same byte for byte. For another size it is the model
 * that its file gives at that size. Rebuilt at the first size again, it equals the original. */
Test(image_size, as_built_at_that_size)
{
    static const char *const names[] = {"resnet18",     "resnet50",    "resnet152",
                                        "densenet121",  "squeezenet",  "resnext50-32x4d",
                                        "inception-v3", "amoebanet-d", "transfer-resnet50"};
    static const uint32_t sizes[][2] = {{128, 128}, {288, 288}, {160, 224}};
    ty_error error = {0};

    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        ty_workload *w = open_one(names[n]), *original = open_one(names[n]);
        const uint32_t side = (uint32_t)original->input.dimensions[1];

        cr_assert_eq(ty_workload_set_image_size(w, side, side, &error), TY_OK, "%s: %s", names[n],
                     error.message);
        assert_same(w, original, names[n]);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const uint32_t height = sizes[s][0], width = sizes[s][1];
            ty_workload *built =
                build_at(names[n], 3, height, width, 3 * (uint64_t)height * width + 2);
            ty_digest own, other;

            cr_assert_eq(ty_workload_set_image_size(w, height, width, &error), TY_OK, "%s: %s",
                         names[n], error.message);
            assert_same(w, built, names[n]);
            cr_assert_eq(w->index.block_count, built->index.block_count, "%s", names[n]);
            for (uint32_t l = 0; l < w->layer_count; l++)
                cr_assert_eq(ty_workload_cut_bytes(w, l), ty_workload_cut_bytes(built, l), "%s",
                             names[n]);
            /* The parameters are the same for any size. */
            cr_assert_eq(ty_workload_network_digest(w, &own, NULL), TY_OK);
            cr_assert_eq(ty_workload_network_digest(original, &other, NULL), TY_OK);
            cr_assert_str_eq(own.hex, other.hex, "%s", names[n]);
            ty_workload_free(built);
        }
        cr_assert_eq(ty_workload_set_image_size(w, side, side, &error), TY_OK);
        assert_same(w, original, names[n]);
        ty_workload_free(original);
        ty_workload_free(w);
    }
}

/* floor((size + 2 padding - kernel) / stride) + 1, through resnet50's table 1. */
Test(image_size, resnet50_by_hand)
{
    static const struct {
        const char *name;
        uint64_t sides[3]; /* at 128, 224, 288 pixels */
    } rows[] = {{"resnet50 image_size=128", {64, 32, 4}},
                {"resnet50 image_size=224", {112, 56, 7}},
                {"resnet50 image_size=288", {144, 72, 9}}};
    double flop_of_last[3];

    for (size_t i = 0; i < 3; i++) {
        ty_workload *w = open_one(rows[i].name);
        const ty_layer *pool = NULL, *classifier = &w->layers[w->layer_count - 2];

        cr_assert_eq(w->layers[0].output.dimensions[1], rows[i].sides[0]);
        for (uint32_t l = 0; l < w->layer_count; l++)
            if (w->layers[l].kind == TY_LAYER_POOL) {
                if (pool == NULL)
                    cr_assert_eq(w->layers[l].output.dimensions[2], rows[i].sides[1]);
                pool = &w->layers[l];
            }
        cr_assert_eq(pool->attributes[TY_KERNEL_HEIGHT], rows[i].sides[2]);
        cr_assert_eq(classifier->attributes[TY_IN_FEATURES], 2048);
        cr_assert_eq(ty_workload_parameter_bytes(w, 0, w->layer_count), 4 * (uint64_t)25557032);
        flop_of_last[i] = ty_workload_forward_flop(w, 0, w->layer_count) - classifier->forward_flop;
        ty_workload_free(w);
    }
    /* All these sides are multiples, so that the work of convolutions is proportional to the
     * pixels. */
    for (size_t i = 0; i < 3; i++)
        cr_assert_float_eq(flop_of_last[i] / (double)(rows[i].sides[2] * rows[i].sides[2]),
                           flop_of_last[1] / 49, 1e-3 * flop_of_last[1] / 49);
}

/* A model that cannot be rebuilt is refused by name, and is unchanged. */
Test(image_size, refusals)
{
    static const struct {
        const char *name;
        uint32_t height, width;
        const char *message; /* begins so */
    } rows[] = {
        {"lenet", 32, 32,
         "image_size 32x32: layer linear1: found linear input 1250, expected a "
         "last dimension of in_features 800, as images of 28x28 make it"},
        {"vgg16", 128, 128, "image_size 128x128: layer linear1: found linear input 8192, "},
        {"mlp", 14, 14, "image_size 14x14: layer linear1: found linear input 196, "},
        {"unet", 96, 96, "image_size 96x96: layer opaque1: found an opaque one, "},
        {"inception-v3", 32, 32, "image_size 32x32: layer "},
        {"gpt2", 32, 32, "image_size: found samples of gpt2 that are not images"},
        {"dlrm-tiny", 32, 32, "image_size: found samples of dlrm-tiny that are not images"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_workload *w = open_one(rows[i].name), *original = open_one(rows[i].name);
        ty_error error = {0};

        cr_assert_eq(ty_workload_set_image_size(w, rows[i].height, rows[i].width, &error),
                     TY_EINVAL, "%s", rows[i].name);
        cr_assert_eq(strncmp(error.message, rows[i].message, strlen(rows[i].message)), 0, "%s: %s",
                     rows[i].name, error.message);
        assert_same(w, original, rows[i].name);
        cr_assert_eq(ty_workload_check(w, "again", NULL), TY_OK);
        ty_workload_free(original);
        ty_workload_free(w);
    }
}

/* Figures that do not follow from the layers' kinds would be lost. */
Test(image_size, figures_from_elsewhere)
{
    ty_workload *w = open_one("resnet18");
    ty_error error = {0};

    w->layers[3].stash_bytes += 4;
    cr_assert_eq(ty_workload_set_image_size(w, 128, 128, &error), TY_EINVAL);
    cr_assert_not_null(strstr(error.message, w->layers[3].name), "%s", error.message);
    cr_assert_not_null(strstr(error.message, "found figures that are not those of a "), "%s",
                       error.message);
    ty_workload_free(w);
}

/* Bytes per sample: a fixed number per pixel value plus the rest; those of compressed images do not
 * change. */
Test(image_size, bytes_of_samples)
{
    static const struct {
        uint64_t before, after;
    } rows[] = {{150530, 49154}, {4 * 150528 + 8, 4 * 49152 + 8}, {110000, 110000}, {0, 0}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_workload *w = open_one("resnet50");
        w->sample_bytes = rows[i].before;
        cr_assert_eq(ty_workload_set_image_size(w, 128, 128, NULL), TY_OK);
        cr_assert_eq(w->sample_bytes, rows[i].after, "%llu", (unsigned long long)w->sample_bytes);
        ty_workload_free(w);
    }
}

Test(image_size, words)
{
    static const struct {
        const char *words, *message;
    } rows[] = {
        {"resnet50 image_size=0", "image_size: "},
        {"resnet50 image_size=128x", "image_size: "},
        {"resnet50 image_size=70000", "image_size: "},
        {"resnet50 image_sizes=128", "did you mean 'image_size'?"},
    };
    ty_workload *w = open_one("resnet50 image_size=128x160 batch=64");

    cr_assert(w->input.dimensions[1] == 128 && w->input.dimensions[2] == 160 &&
              w->global_batch == 64);
    ty_workload_free(w);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_error error = {0};
        cr_assert_eq(ty_workload_open(rows[i].words, &w, &error), TY_EINVAL, "%s", rows[i].words);
        cr_assert_not_null(strstr(error.message, rows[i].message), "%s", error.message);
    }
}

/* Every failing allocation leaves the workload unchanged. */
Test(image_size, out_of_memory)
{
    ty_workload *w = open_one("resnet18"), *original = open_one("resnet18");
    ty_status status = TY_ENOMEM;

    for (long n = 1; status == TY_ENOMEM && n < 1000; n++) {
        ty_memory_fail_after(n);
        status = ty_workload_set_image_size(w, 128, 128, NULL);
        ty_memory_fail_after(0);
        if (status != TY_OK) {
            assert_same(w, original, "after a failed allocation");
            cr_assert_eq(w->index.block_count, original->index.block_count);
        }
    }
    cr_assert_eq(status, TY_OK);
    ty_workload_free(original);
    ty_workload_free(w);
}
