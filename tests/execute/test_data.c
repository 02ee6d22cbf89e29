/* Data sets: the real Fashion-MNIST if it is installed, damaged IDX files, text, synthetic data. */
#include "dataset.h"
#include "network.h"
#include "tokens.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static void take(const ty_dataset *d, uint64_t sample, float *input, int32_t *tokens,
                 int32_t *labels)
{
    ty_error error = {0};

    cr_assert_eq(ty_dataset_sample(d, sample, input, tokens, labels, &error), TY_OK, "%s",
                 error.message);
}

static char directory[64];

static void directory_make(void)
{
    strcpy(directory, "/tmp/trainyard-data-XXXXXX");
    cr_assert_not_null(mkdtemp(directory));
}

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static void directory_remove(void)
{
    const char *names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                           "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "text"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(path_of(names[i]));
    rmdir(directory);
}

static void file_put(const char *name, const void *bytes, size_t length)
{
    FILE *file = fopen(path_of(name), "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, length, file), length);
    fclose(file);
}

static void gz_put(const char *name, const void *bytes, size_t length)
{
    gzFile file = gzopen(path_of(name), "wb");
    cr_assert_not_null(file);
    if (length > 0)
        cr_assert_eq(gzwrite(file, bytes, (unsigned)length), (int)length);
    gzclose(file);
}

/* A workload for 2 x 3 images and 4 classes. */
static ty_workload *small_images(void)
{
    ty_workload *w = network_new(TY_INPUT_REAL, 3, (uint64_t[]){1, 2, 3});
    int x = network_simple(w, -1, TY_LAYER_FLATTEN);
    network_loss(w, network_linear(w, x, 4, true));
    free(w->dataset);
    w->dataset = strdup("fashion-mnist");
    return w;
}

static const unsigned char images[16 + 12] = {0, 0, 8, 3,  0,   0,   0,   2,   0, 0, 0, 2, 0, 0,
                                              0, 3, 0, 51, 102, 153, 204, 255, 1, 2, 3, 4, 5, 6};
static const unsigned char labels[8 + 2] = {0, 0, 8, 1, 0, 0, 0, 2, 3, 0};

Test(data, idx_files_are_read_plain_and_compressed, .init = directory_make,
     .fini = directory_remove)
{
    ty_workload *w = small_images();
    for (int compressed = 0; compressed < 2; compressed++) {
        ty_dataset *d = NULL;
        ty_error error = {0};
        float input[6];
        int32_t label = -1;
        if (compressed) {
            unlink(path_of("train-images-idx3-ubyte"));
            gz_put("train-images-idx3-ubyte.gz", images, sizeof images);
            gz_put("train-labels-idx1-ubyte.gz", labels, sizeof labels);
        } else {
            file_put("train-images-idx3-ubyte", images, sizeof images);
            file_put("train-labels-idx1-ubyte", labels, sizeof labels);
        }
        cr_assert_eq(ty_dataset_open(w, directory, false, &d, &error), TY_OK, "%s", error.message);
        cr_assert_eq(ty_dataset_sample_count(d), 2);
        take(d, 0, input, NULL, &label);
        cr_assert_eq(label, 3);
        for (int i = 0; i < 6; i++)
            cr_assert_float_eq(input[i], (i * 0.2 - 0.2860406) / 0.3530242, 1e-5, "pixel %d", i);
        take(d, 1, NULL, NULL, &label);
        cr_assert_eq(label, 0);
        ty_dataset_close(d);
    }
    network_free(w);
}

/* A folder of data sets precedes Debian's, if it has the requested data set. */
Test(data, idx_files_are_found_in_a_folder_of_data_sets, .init = directory_make,
     .fini = directory_remove)
{
    ty_workload *w = small_images();
    ty_dataset *d = NULL;
    ty_error error = {0};
    char found[80];

    file_put("train-images-idx3-ubyte", images, sizeof images);
    file_put("train-labels-idx1-ubyte", labels, sizeof labels);
    setenv("TRAINYARD_DATASETS", directory, 1);
    cr_assert_neq(ty_dataset_open(w, NULL, false, &d, &error), TY_OK); /* not that one's images */
    cr_assert_null(strstr(error.message, directory), "%s", error.message);
    snprintf(found, sizeof found, "%s/fashion-mnist", directory);
    cr_assert_eq(symlink(directory, found), 0);
    cr_assert_eq(ty_dataset_open(w, NULL, false, &d, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_dataset_sample_count(d), 2);
    ty_dataset_close(d);
    unlink(found);
    network_free(w);
}

/* One byte changed, removed or added. */
static const struct damage {
    const char *name;
    bool is_label_file;
    int offset; /* of the byte that becomes `value`; -1: none */
    unsigned char value;
    int length; /* added to the file's length; -1000: empty */
    const char *message;
} damages[] = {
    {"empty", false, -1, 0, -1000, "found 0 bytes, expected an IDX header of 16"},
    {"half a header", false, -1, 0, -20, "found 8 bytes"},
    {"magic", false, 0, 1, 0, "found magic number 0x01000803, expected 0x00000803"},
    {"signed bytes", false, 2, 9, 0, "0x00000903"},
    {"dimensions", false, 3, 1, 0, "0x00000801, expected 0x00000803"},
    {"labels' dimensions", true, 3, 3, 0, "0x00000803, expected 0x00000801"},
    {"no images", false, 7, 0, 0, "product is 0"},
    {"more images than bytes", false, 7, 3, 0, "truncated: found 28 bytes, expected 34"},
    {"absurdly many", false, 4, 255, 0, "above 2^30"},
    {"width", false, 15, 2, 0, "more than 24 bytes"},
    {"truncated", false, -1, 0, -1, "truncated: found 27 bytes, expected 28"},
    {"trailing", false, -1, 0, 1, "found more than 28 bytes"},
    {"labels truncated", true, -1, 0, -1, "truncated"},
    {"labels trailing", true, -1, 0, 2, "more than 10 bytes"},
    {"fewer labels", true, 7, 1, -1, "found 1 labels, expected 2"},
    {"label out of range", true, 9, 4, 0, "found label 4 of sample 1, expected 0 to 3"},
};

Test(data, damaged_idx_files_are_refused, .init = directory_make, .fini = directory_remove)
{
    ty_workload *w = small_images();
    for (size_t i = 0; i < 2 * sizeof damages / sizeof *damages; i++) {
        const struct damage *d = &damages[i / 2];
        bool compressed = i % 2;
        unsigned char bytes[64] = {0};
        size_t length = d->is_label_file ? sizeof labels : sizeof images;
        ty_dataset *dataset = NULL;
        ty_error error = {0};
        ty_status status;
        void (*put)(const char *, const void *, size_t) = compressed ? gz_put : file_put;
        memcpy(bytes, d->is_label_file ? labels : images, length);
        if (d->offset >= 0)
            bytes[d->offset] = d->value;
        length = d->length == -1000 ? 0 : (size_t)((int)length + d->length);
        directory_remove();
        cr_assert_eq(mkdir(directory, 0700), 0);
        put(compressed ? "train-images-idx3-ubyte.gz" : "train-images-idx3-ubyte",
            d->is_label_file ? images : bytes, d->is_label_file ? sizeof images : length);
        put(compressed ? "train-labels-idx1-ubyte.gz" : "train-labels-idx1-ubyte",
            d->is_label_file ? bytes : labels, d->is_label_file ? length : sizeof labels);
        status = ty_dataset_open(w, directory, false, &dataset, &error);
        cr_assert_eq(status, TY_EPARSE, "%s: %s", d->name, error.message);
        cr_assert_null(dataset);
        cr_assert_not_null(strstr(error.message, d->message), "%s: %s", d->name, error.message);
        cr_assert_not_null(strstr(error.message, directory), "%s: %s", d->name, error.message);
    }
    network_free(w);
}

Test(data, damaged_compression_is_refused, .init = directory_make, .fini = directory_remove)
{
    static unsigned char bytes[200000];
    ty_workload *w = small_images();
    ty_dataset *dataset = NULL;
    ty_error error = {0};
    FILE *file;
    size_t length;

    /* Truncated inside the compressed data. */
    gz_put("train-images-idx3-ubyte.gz", images, sizeof images);
    gz_put("train-labels-idx1-ubyte.gz", labels, sizeof labels);
    cr_assert_eq(truncate(path_of("train-images-idx3-ubyte.gz"), 30), 0);
    cr_assert_eq(ty_dataset_open(w, directory, false, &dataset, &error), TY_EPARSE);
    cr_assert_not_null(strstr(error.message, "truncated"), "%s", error.message);

    /* A wrong checksum. */
    gz_put("train-images-idx3-ubyte.gz", images, sizeof images);
    file = fopen(path_of("train-images-idx3-ubyte.gz"), "rb");
    length = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    bytes[length - 6] ^= 1;
    file_put("train-images-idx3-ubyte.gz", bytes, length);
    cr_assert_eq(ty_dataset_open(w, directory, false, &dataset, &error), TY_EPARSE);
    cr_assert_not_null(strstr(error.message, "damaged compressed data"), "%s", error.message);

    /* A small file that unpacks to a large one: only the bytes in the header are unpacked. */
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, images, sizeof images);
    gz_put("train-images-idx3-ubyte.gz", bytes, sizeof bytes);
    cr_assert_eq(ty_dataset_open(w, directory, false, &dataset, &error), TY_EPARSE);
    cr_assert_not_null(strstr(error.message, "more than 28 bytes"), "%s", error.message);

    /* Missing file; another shape of image; another kind of model. */
    cr_assert_eq(ty_dataset_open(w, directory, true, &dataset, &error), TY_EIO);
    cr_assert_not_null(strstr(error.message, "t10k-images-idx3-ubyte: no such file"), "%s",
                       error.message);
    gz_put("train-images-idx3-ubyte.gz", images, sizeof images);
    w->input.dimensions[2] = 4;
    cr_assert_eq(ty_dataset_open(w, directory, false, &dataset, &error), TY_EPARSE);
    cr_assert_not_null(strstr(error.message, "images of 2 x 3, expected 8 pixels"), "%s",
                       error.message);
    free(w->dataset);
    w->dataset = strdup("imagenet");
    cr_assert_eq(ty_dataset_open(w, directory, false, &dataset, &error), TY_EUNSUPPORTED);
    cr_assert_not_null(strstr(error.message, "imagenet"), "%s", error.message);
    cr_assert_null(dataset);
    network_free(w);
}

Test(data, every_failing_allocation_is_reported, .init = directory_make, .fini = directory_remove)
{
    ty_workload *w = small_images();
    ty_dataset *d = NULL;
    long n = 1;
    gz_put("train-images-idx3-ubyte.gz", images, sizeof images);
    gz_put("train-labels-idx1-ubyte.gz", labels, sizeof labels);
    for (; n < 1000; n++) {
        ty_error error = {0};
        ty_status status;
        ty_memory_fail_after(n);
        status = ty_dataset_open(w, directory, false, &d, &error);
        ty_memory_fail_after(0);
        if (status == TY_OK)
            break;
        cr_assert_eq(status, TY_ENOMEM, "allocation %ld: %s", n, error.message);
    }
    cr_assert_gt(n, 5);
    ty_dataset_close(d);
    network_free(w);
}

/* Counts and moments of the published data set. */
Test(data, installed_fashion_mnist_is_complete)
{
    ty_workload *w = network_make_mlp();
    free(w->dataset);
    w->dataset = strdup("fashion-mnist");
    for (int test = 0; test < 2; test++) {
        ty_dataset *d = NULL;
        ty_error error = {0};
        ty_status status = ty_dataset_open(w, NULL, test, &d, &error);
        uint64_t per_class[10] = {0}, n = test ? 10000 : 60000;
        double sum = 0, squares = 0, count;
        if (status == TY_EIO) {
            network_free(w);
            cr_skip_test("dataset-fashion-mnist is not installed");
        }
        cr_assert_eq(status, TY_OK, "%s", error.message);
        cr_assert_eq(ty_dataset_sample_count(d), n);
        for (uint64_t i = 0; i < n; i++) {
            float input[784];
            int32_t label;
            take(d, i, input, NULL, &label);
            per_class[label]++;
            for (int p = 0; p < 784; p++) {
                sum += (double)input[p];
                squares += (double)input[p] * (double)input[p];
            }
        }
        for (int c = 0; c < 10; c++)
            cr_assert_eq(per_class[c], n / 10, "class %d", c);
        count = (double)n * 784;
        cr_assert_leq(fabs(sum / count), test ? 0.01 : 1e-5);
        cr_assert_leq(fabs(squares / count - 1), test ? 0.02 : 1e-5);
        ty_dataset_close(d);
    }
    network_free(w);
}

/* ---- Text ---- */

static ty_workload *small_text(uint64_t length, uint64_t vocabulary)
{
    ty_workload *w = network_make_gpt(1, 8, 2, length, vocabulary);
    free(w->dataset);
    w->dataset = strdup("text");
    return w;
}

Test(data, text_is_cut_into_windows, .init = directory_make, .fini = directory_remove)
{
    ty_workload *w = small_text(5, 256);
    unsigned char text[200];
    bool seen[200] = {false};
    for (int i = 0; i < 200; i++)
        text[i] = (unsigned char)(i + 7);
    file_put("text", text, sizeof text);
    for (int test = 0; test < 2; test++) {
        ty_dataset *d = NULL;
        ty_error error = {0};
        int first = test ? 180 : 0, end = test ? 200 : 180, stride = test ? 5 : 1;
        cr_assert_eq(ty_dataset_open(w, path_of("text"), test, &d, &error), TY_OK, "%s",
                     error.message);
        cr_assert_eq(ty_dataset_sample_count(d), (uint64_t)((end - first - 6) / stride + 1));
        for (uint64_t s = 0; s < ty_dataset_sample_count(d); s++) {
            int32_t tokens[5], next[5];
            take(d, s, NULL, tokens, next);
            for (int t = 0; t < 5; t++) {
                int at = first + (int)s * stride + t;
                cr_assert_eq(tokens[t], text[at]);
                cr_assert_eq(next[t], text[at + 1]);
                cr_assert(at + 1 < end);
                seen[at] = true;
            }
        }
        ty_dataset_close(d);
    }
    for (int i = 0; i < 179; i++)
        cr_assert(seen[i], "byte %d is in no window", i);
    network_free(w);
}

/* The same windows over tokens of any width, and only if the model's vocabulary contains all of
 * them. */
Test(data, tokens_are_cut_into_windows, .init = directory_make, .fini = directory_remove)
{
    static const char text[] =
        "the cat and the hat and the cat and the hat and the cat and the hat";
    static const uint32_t vocabularies[] = {256, 262};

    for (int v = 0; v < 2; v++) {
        ty_workload *w = small_text(4, v == 0 ? 256 : 300);
        ty_tokens *made = NULL;
        ty_dataset *train = NULL, *test = NULL;
        ty_error error = {0};
        int32_t tokens[4], next[4];

        cr_assert_eq(ty_tokens_learn(text, strlen(text), vocabularies[v], &made, &error), TY_OK,
                     "%s", error.message);
        cr_assert_eq(made->vocabulary, vocabularies[v]);
        cr_assert_eq(made->token_bytes, v == 0 ? 1 : 2);
        cr_assert_eq(ty_tokens_save(made, path_of("text"), &error), TY_OK, "%s", error.message);
        cr_assert_eq(ty_dataset_open(w, path_of("text"), false, &train, &error), TY_OK, "%s",
                     error.message);
        cr_assert_eq(ty_dataset_sample_count(train), made->count - made->count / 10 - 4);
        for (uint64_t s = 0; s < ty_dataset_sample_count(train); s++) {
            take(train, s, NULL, tokens, next);
            for (uint64_t i = 0; i < 4; i++) {
                cr_assert_eq((uint32_t)tokens[i], ty_token_at(made, s + i));
                cr_assert_eq((uint32_t)next[i], ty_token_at(made, s + i + 1));
            }
        }
        if (ty_dataset_open(w, path_of("text"), true, &test, &error) == TY_OK) {
            take(test, 0, NULL, tokens, NULL);
            cr_assert_eq((uint32_t)tokens[0], ty_token_at(made, made->count - made->count / 10));
            ty_dataset_close(test);
        }
        ty_dataset_close(train);
        ty_tokens_close(made);
        network_free(w);
    }
}

Test(data, tokens_beyond_the_network_are_refused, .init = directory_make, .fini = directory_remove)
{
    ty_workload *w = small_text(4, 257);
    ty_tokens *made = NULL;
    ty_dataset *d = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_tokens_learn("abababababababababababab", 24, 300, &made, &error), TY_OK);
    cr_assert_eq(ty_tokens_save(made, path_of("text"), &error), TY_OK);
    cr_assert_eq(ty_dataset_open(w, path_of("text"), false, &d, &error), TY_EPARSE);
    cr_assert_not_null(strstr(error.message, "expected at most the network's 257"), "%s",
                       error.message);
    ty_tokens_close(made);
    network_free(w);
}

Test(data, unfit_text_is_refused, .init = directory_make, .fini = directory_remove)
{
    ty_workload *w = small_text(5, 100), *mlp = small_images();
    ty_dataset *d = NULL;
    ty_error error = {0};
    cr_assert_eq(ty_dataset_open(w, path_of("text"), false, &d, &error), TY_EIO);
    file_put("text", "0123d56789", 10);
    cr_assert_eq(ty_dataset_open(w, path_of("text"), false, &d, &error), TY_EPARSE);
    cr_assert_not_null(strstr(error.message, "byte 100 at offset 4"), "%s", error.message);
    file_put("text", "0123456789012345678901234567890", 31);
    cr_assert_eq(ty_dataset_open(w, path_of("text"), true, &d, &error), TY_EPARSE);
    cr_assert_not_null(strstr(error.message, "3 bytes for testing, expected at least 6"), "%s",
                       error.message);
    free(mlp->dataset);
    mlp->dataset = strdup("text");
    cr_assert_eq(ty_dataset_open(mlp, path_of("text"), false, &d, &error), TY_EINVAL);
    cr_assert_null(d);
    network_free(w);
    network_free(mlp);
}

/* ---- Synthetic ---- */

Test(data, synthetic_data_repeats_itself_and_can_be_learnt)
{
    ty_workload *w = network_make_mlp(), *gpt = network_make_gpt(1, 8, 2, 16, 50);
    ty_dataset *train = NULL, *test = NULL, *filled = NULL, *tokens = NULL;
    float mean[10][784] = {{0}}, count[10] = {0};
    int32_t follows[50];
    uint64_t right = 0;
    cr_assert_eq(ty_dataset_open(w, NULL, false, &train, NULL), TY_OK);
    cr_assert_eq(ty_dataset_open(w, NULL, true, &test, NULL), TY_OK);
    cr_assert_eq(ty_dataset_open(w, NULL, false, &filled, NULL), TY_OK);
    cr_assert_eq(ty_dataset_open(gpt, NULL, false, &tokens, NULL), TY_OK);
    ty_dataset_fill(filled);
    ty_dataset_fill(tokens);              /* which caches nothing */
    for (uint64_t s = 0; s < 1000; s++) { /* the nearest class mean recognizes unseen samples */
        float input[784], again[784];
        int32_t label;
        take(train, s, input, NULL, &label);
        take(train, s, again, NULL, NULL);
        cr_assert_arr_eq(input, again, sizeof input);
        count[label]++;
        for (int i = 0; i < 784; i++)
            mean[label][i] += input[i];
    }
    for (uint64_t s = 0; s < 200; s++) {
        float input[784], best = INFINITY;
        int32_t label, nearest = -1;
        take(test, s, input, NULL, &label);
        for (int c = 0; c < 10; c++) {
            float distance = 0;
            for (int i = 0; i < 784; i++)
                distance += powf(input[i] - mean[c][i] / count[c], 2);
            if (distance < best) {
                best = distance;
                nearest = c;
            }
        }
        right += nearest == label;
    }
    cr_assert_geq(right, 199);
    for (uint64_t s = 0; s < 1024; s += 341) { /* numbers come from a pool of 1,024 samples */
        float input[784], again[784];
        int32_t label, same;
        take(train, s, input, NULL, &label);
        take(train, s + 1024, again, NULL, &same);
        cr_expect_arr_eq(input, again, sizeof input);
        cr_expect_eq(label, same);
        take(filled, s, again, NULL, &same);
        cr_expect_arr_eq(input, again, sizeof input);
        cr_expect_eq(label, same);
        take(train, s + 1, again, NULL, NULL);
        cr_expect_arr_neq(input, again, sizeof input);
        take(test, s, again, NULL, NULL);
        cr_expect_arr_neq(input, again, sizeof input);
    }
    for (int i = 0; i < 50; i++)
        follows[i] = -1;
    for (uint64_t s = 0; s < 500; s++) { /* each token has one successor */
        int32_t token[16], next[16];
        take(tokens, s, NULL, token, next);
        for (int t = 0; t < 16; t++) {
            cr_assert(token[t] >= 0 && token[t] < 50 && next[t] >= 0 && next[t] < 50);
            cr_assert(follows[token[t]] == -1 || follows[token[t]] == next[t]);
            cr_assert(t == 15 || next[t] == token[t + 1]);
            follows[token[t]] = next[t];
        }
    }
    ty_dataset_close(train);
    ty_dataset_close(filled);
    ty_dataset_close(test);
    ty_dataset_close(tokens);
    network_free(w);
    network_free(gpt);
}

/* Indices within the tables, small ones more often. The category and number averages of seen
 * samples predict the clicks of unseen ones. */
Test(data, clicks_are_skewed_and_can_be_learnt)
{
    ty_workload *w = network_make_dlrm();
    ty_dataset *train = NULL, *test = NULL;
    float clicks[10][11] = {{0}}, seen[10][11] = {{0}}, slope[3] = {0};
    static const float rows[10] = {0, 0, 0, 11, 5, 5, 5, 4, 4, 3};
    uint64_t right = 0, clicked = 0;
    cr_assert_eq(ty_dataset_open(w, NULL, false, &train, NULL), TY_OK);
    cr_assert_eq(ty_dataset_open(w, NULL, true, &test, NULL), TY_OK);
    for (uint64_t s = 0; s < 4000; s++) {
        float input[10], again[10];
        int32_t label;
        take(train, s, input, NULL, &label);
        take(train, s, again, NULL, NULL);
        cr_assert_arr_eq(input, again, sizeof input);
        cr_assert(label == 0 || label == 1);
        clicked += (uint64_t)label;
        for (int i = 0; i < 10; i++) {
            if (i < 3) {
                slope[i] += input[i] * ((float)label - 0.5f);
                continue;
            }
            cr_assert(input[i] >= 0 && input[i] < rows[i] && input[i] == floorf(input[i]));
            clicks[i][(int)input[i]] += (float)label;
            seen[i][(int)input[i]]++;
        }
    }
    cr_assert(clicked > 400 && clicked < 3600, "%llu clicks", (unsigned long long)clicked);
    cr_assert_gt(seen[3][0], 2 * seen[3][5], "found %g and %g", (double)seen[3][0],
                 (double)seen[3][5]);
    for (uint64_t s = 0; s < 1000; s++) {
        float input[10], rate = (float)clicked / 4000, sum = rate;
        int32_t label;
        take(test, s, input, NULL, &label);
        for (int i = 0; i < 10; i++)
            sum += i < 3
                       ? input[i] * slope[i] * 3 / 4000
                       : clicks[i][(int)input[i]] / seen[i][(int)input[i]] - (float)clicked / 4000;
        right += (sum > 0.5f) == (label == 1);
    }
    cr_assert_geq(right, 850, "found %llu of 1000", (unsigned long long)right);
    ty_dataset_close(train);
    ty_dataset_close(test);
    network_free(w);
}

/* An encoder's tokens come first, and labels are the decoder's: in text and in synthetic data. */
Test(data, labels_are_of_the_last_tokens, .init = directory_make, .fini = directory_remove)
{
    enum { TOKENS = 12, LABELS = 5, VOCABULARY = 256 };
    static const char *const names[] = {"synthetic", "text"};
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){TOKENS});
    int x = network_embedding(w, VOCABULARY, 4, 0),
        memory = network_slice(w, x, 0, TOKENS - LABELS);
    x = network_cross_attention(w, network_slice(w, x, TOKENS - LABELS, LABELS), memory, 1, 1, 4,
                                false);
    network_loss(w, network_linear(w, x, VOCABULARY, false));
    file_put("text", "an encoder's tokens come first, then the decoder's, which have labels", 69);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int32_t tokens[TOKENS], next[LABELS + 1] = {[LABELS] = -7};
        ty_dataset *d = NULL;
        free(w->dataset);
        w->dataset = strdup(names[i]);
        cr_assert_eq(ty_dataset_open(w, i == 0 ? NULL : path_of("text"), false, &d, NULL), TY_OK);
        take(d, 3, NULL, tokens, next);
        for (int l = 0; l + 1 < LABELS; l++)
            cr_assert_eq(next[l], tokens[TOKENS - LABELS + l + 1], "%s: label %d", names[i], l);
        cr_assert_eq(next[LABELS], -7);
        ty_dataset_close(d);
    }
    network_free(w);
}

/* ---- Order ---- */

Test(data, each_epoch_is_a_permutation_of_its_own)
{
    const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 100, 1000, 4096, 4097};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (uint64_t seed = 0; seed < 3; seed++) {
            ty_dataset d = {.sample_count = sizes[k]};
            uint64_t *order = calloc(2 * sizes[k], sizeof *order), same = 0;
            for (uint64_t epoch = 0; epoch < 2; epoch++) {
                bool *seen = calloc(sizes[k], sizeof *seen);
                for (uint64_t i = 0; i < sizes[k]; i++) {
                    uint64_t at = epoch * sizes[k] + i;
                    order[at] = ty_dataset_shuffled(&d, seed, at);
                    cr_assert_lt(order[at], sizes[k]);
                    cr_assert(!seen[order[at]], "%lu twice in epoch %lu of %lu", order[at], epoch,
                              sizes[k]);
                    seen[order[at]] = true;
                }
                free(seen);
            }
            for (uint64_t i = 0; i < sizes[k]; i++)
                same += order[i] == order[sizes[k] + i];
            cr_assert(sizes[k] < 100 || same < 12, "%lu of %lu in the same place", same, sizes[k]);
            free(order);
        }
}

/* A shuffle without structure: the correlation of index and sample is below four deviations. */
Test(data, the_order_looks_random)
{
    enum { N = 60000 };
    ty_dataset d = {.sample_count = N};
    double sum = 0, neighbours = 0, variance = ((double)N * N - 1) / 12, mean = (N - 1) / 2.0;
    double before = 0;
    for (uint64_t i = 0; i < N; i++) {
        double at = (double)ty_dataset_shuffled(&d, 1, i) - mean;
        sum += at * ((double)i - mean);
        neighbours += at * before;
        before = at;
    }
    cr_assert_leq(fabs(sum / variance / sqrt(N)), 4.0);
    cr_assert_leq(fabs(neighbours / variance / sqrt(N)), 4.0);
}
