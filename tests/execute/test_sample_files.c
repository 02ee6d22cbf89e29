/* Samples in files of other programs: images in folders and tar files, tokens of Megatron-LM and
 * llm.c; preprocessed data, and unreadable files. */
#include "dataset.h"
#include "network.h"
#include "tar_entries.h"
#include "tokens.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef TY_HAS_PNG
#include <png.h>
#endif
#ifdef TY_HAS_JPEG
#include <jpeglib.h>
#endif

static char folder[64];

static void folder_make(void)
{
    strcpy(folder, "/tmp/trainyard-samples-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void folder_remove(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

static const char *path_of(const char *name)
{
    static char paths[4][160]; /* several at once */
    static int next;

    next = (next + 1) % 4;
    snprintf(paths[next], sizeof paths[next], "%s/%s", folder, name);
    return paths[next];
}

static void file_put(const char *path, const void *bytes, size_t length)
{
    FILE *file = fopen(path, "wb");

    cr_assert_not_null(file, "%s", path);
    cr_assert_eq(fwrite(bytes, 1, length, file), length);
    fclose(file);
}

static char *file_get(const char *path, size_t *length)
{
    char *bytes = NULL;

    cr_assert_eq(ty_file_read(path, 0, &bytes, length, NULL), TY_OK, "%s", path);
    return bytes;
}

static void take(const ty_dataset *d, uint64_t sample, float *input, int32_t *tokens,
                 int32_t *labels)
{
    ty_error error = {0};

    cr_assert_eq(ty_dataset_sample(d, sample, input, tokens, labels, &error), TY_OK, "%s",
                 error.message);
}

/* ---- Tokens ---- */

static ty_workload *text_network(uint64_t length, uint64_t vocabulary)
{
    ty_workload *w = network_make_gpt(1, 8, 2, length, vocabulary);

    free(w->dataset);
    w->dataset = strdup("text");
    return w;
}

enum { TOKENS = 200, SEQUENCES = 4, VOCABULARY = 300 };

static uint32_t token_of(uint32_t i)
{
    return i * 37 % VOCABULARY;
}

static void put(unsigned char **at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *(*at)++ = (unsigned char)(value >> (8 * i));
}

/* TOKENS tokens with the given number of bytes. */
static size_t tokens_make(unsigned char *out, int bytes)
{
    unsigned char *at = out;

    for (uint32_t i = 0; i < TOKENS; i++)
        put(&at, bytes == 1 ? token_of(i) % 200 : token_of(i), bytes);
    return (size_t)(at - out);
}

static size_t index_make(unsigned char *out, int type, int bytes)
{
    unsigned char *at = out;
    const uint32_t length = TOKENS / SEQUENCES;

    memcpy(at, "MMIDIDX\0\0", 9);
    at += 9;
    put(&at, 1, 8);
    put(&at, (uint64_t)type, 1);
    put(&at, SEQUENCES, 8);
    put(&at, 3, 8);
    for (int s = 0; s < SEQUENCES; s++)
        put(&at, length, 4);
    for (int s = 0; s < SEQUENCES; s++)
        put(&at, (uint64_t)s * length * (uint64_t)bytes, 8);
    for (uint64_t d = 0; d < 3; d++)
        put(&at, d * 2, 8);
    return (size_t)(at - out);
}

static size_t llmc_make(unsigned char *out, uint32_t magic, uint32_t version, int bytes)
{
    unsigned char *at = out;

    memset(out, 0, 1024);
    put(&at, magic, 4);
    put(&at, version, 4);
    put(&at, TOKENS, 4);
    return 1024 + tokens_make(out + 1024, bytes);
}

static void windows_check(const char *path, int bytes)
{
    ty_workload *w = text_network(4, VOCABULARY);
    ty_dataset *d = NULL;
    ty_error error = {0};
    int32_t tokens[4], next[4];

    cr_assert_eq(ty_dataset_open(w, path, false, &d, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_dataset_sample_count(d), TOKENS - TOKENS / 10 - 4);
    for (uint32_t s = 0; s < ty_dataset_sample_count(d); s++) {
        take(d, s, NULL, tokens, next);
        for (uint32_t i = 0; i < 4; i++) {
            cr_assert_eq(tokens[i],
                         (int32_t)(bytes == 1 ? token_of(s + i) % 200 : token_of(s + i)));
            cr_assert(i == 3 || next[i] == tokens[i + 1]);
        }
    }
    ty_dataset_close(d);
    network_free(w);
}

Test(sample_files, tokens_of_other_programs, .init = folder_make, .fini = folder_remove)
{
    static const struct {
        int type, bytes;
    } kinds[] = {{1, 1}, {8, 2}, {4, 4}};
    unsigned char bytes[4096];

    for (size_t k = 0; k < 3; k++) {
        file_put(path_of("data.bin"), bytes, tokens_make(bytes, kinds[k].bytes));
        file_put(path_of("data.idx"), bytes, index_make(bytes, kinds[k].type, kinds[k].bytes));
        windows_check(path_of("data.bin"), kinds[k].bytes);
        windows_check(path_of("data.idx"), kinds[k].bytes);
        windows_check(path_of("data"), kinds[k].bytes);
    }
    file_put(path_of("gpt2.bin"), bytes, llmc_make(bytes, 20240520, 1, 2));
    windows_check(path_of("gpt2.bin"), 2);
    file_put(path_of("llama3.bin"), bytes, llmc_make(bytes, 20240801, 7, 4));
    windows_check(path_of("llama3.bin"), 4);
}

static void refused(const char *path, const char *said)
{
    ty_tokens *tokens = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_tokens_open(path, &tokens, &error), TY_EPARSE, "%s was taken", said);
    cr_assert_not_null(strstr(error.message, said), "'%s' lacks '%s'", error.message, said);
}

Test(sample_files, bad_tokens_of_other_programs, .init = folder_make, .fini = folder_remove)
{
    static const struct {
        size_t at;
        unsigned char value;
        const char *said;
    } spoilt[] = {
        {9, 2, "no index of version 1"},
        {17, 5, "found tokens of type 5, expected 1 (uint8), 4 (int32) or 8 (uint16)"},
        {18, 9, "expected a header of 34, 12 for each of 9 sequences"},
        {25, 255, "sequences"},
        {26, 200, "8 for each of 200 documents"},
        {34, 49, "sequence 1: found place 100"},
        {37, 255, "sequence 0"},
        {34 + 16, 2, "sequence 0: found place 2 and length 50, expected place 0"},
    };
    unsigned char index[512], bytes[4096];
    const size_t length = index_make(index, 8, 2);

    file_put(path_of("data.bin"), bytes, tokens_make(bytes, 2));
    for (size_t i = 0; i < sizeof spoilt / sizeof spoilt[0]; i++) {
        const unsigned char right = index[spoilt[i].at];

        index[spoilt[i].at] = spoilt[i].value;
        file_put(path_of("data.idx"), index, length);
        refused(path_of("data.bin"), spoilt[i].said);
        index[spoilt[i].at] = right;
    }
    file_put(path_of("data.idx"), index, 20);
    refused(path_of("data.bin"), "no index of version 1");
    file_put(path_of("data.idx"), index, length);
    file_put(path_of("data.bin"), bytes, 399);
    refused(path_of("data.bin"), "found 399 bytes, expected 200 tokens of 2");

    file_put(path_of("c.bin"), bytes, llmc_make(bytes, 20240520, 2, 2));
    refused(path_of("c.bin"), "found version 2 of llm.c's tokens, expected 1");
    file_put(path_of("c.bin"), bytes, llmc_make(bytes, 20240520, 1, 2) - 1);
    refused(path_of("c.bin"), "found 1423 bytes, expected a header of 1024 and 200 tokens of 2");
    llmc_make(bytes, 20240801, 7, 4);
    bytes[1024 + 3] = 0x80;
    file_put(path_of("c.bin"), bytes, 1024 + 4 * TOKENS);
    refused(path_of("c.bin"), "found token 2147483648, expected less than 1048576");
}

/* ---- Tar ---- */

static size_t tar_put(unsigned char *out, const char *name, const void *bytes, size_t length)
{
    unsigned sum = 0;

    memset(out, 0, 512);
    snprintf((char *)out, 100, "%s", name);
    snprintf((char *)out + 124, 12, "%011o", (unsigned)length);
    memcpy(out + 257,
           "ustar\0"
           "00",
           8);
    out[156] = '0';
    memset(out + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += out[i];
    snprintf((char *)out + 148, 8, "%06o", sum);
    memcpy(out + 512, bytes, length);
    memset(out + 512 + length, 0, 512);
    return 512 + (length + 511) / 512 * 512;
}

Test(sample_files, tar_that_lies_is_refused)
{
    unsigned char tar[4096];
    tar_entry entry;
    bool is_end;
    ty_error error = {0};
    uint64_t at = 0;
    size_t used = tar_put(tar, "a.jpg", "abc", 3);

    memset(tar + used, 0, 1024);
    cr_assert_eq(tar_next(tar, used + 1024, &at, "t", &entry, &is_end, &error), TY_OK);
    cr_assert(!is_end && strcmp(entry.name, "a.jpg") == 0 && entry.offset == 512 &&
              entry.bytes == 3);
    cr_assert_eq(tar_next(tar, used + 1024, &at, "t", &entry, &is_end, &error), TY_OK);
    cr_assert(is_end);
    at = 0;
    cr_assert_eq(tar_next(tar, 514, &at, "t", &entry, &is_end, &error), TY_EPARSE);
    cr_assert_str_eq(error.message, "t: found no header of tar at byte 0, or one of more than the "
                                    "2 bytes behind it");
    tar[0] = 'b';
    cr_assert_eq(tar_next(tar, used, &at, "t", &entry, &is_end, &error), TY_EPARSE);
}

/* ---- Images ---- */

enum { SIDE = 4, CLASSES = 3, IMAGES = 8 };

static ty_workload *image_network(uint64_t channels)
{
    ty_workload *w = network_new(TY_INPUT_REAL, 3, (uint64_t[]){channels, SIDE, SIDE});
    int x = network_simple(w, -1, TY_LAYER_FLATTEN);

    network_loss(w, network_linear(w, x, CLASSES, true));
    return w;
}

#if defined TY_HAS_PNG && defined TY_HAS_JPEG
/* Of a single color, so that scaling does not change it; JPEG changes it by one or two. */
static void image_put(const char *path, bool is_png, unsigned side, const unsigned char colour[3])
{
    unsigned char *pixels = calloc(side * side, 3);

    for (unsigned i = 0; i < side * side * 3; i++)
        pixels[i] = colour[i % 3];
    if (is_png) {
        png_image image = {
            .version = PNG_IMAGE_VERSION, .width = side, .height = side, .format = PNG_FORMAT_RGB};
        cr_assert_neq(png_image_write_to_file(&image, path, 0, pixels, 0, NULL), 0);
    } else {
        struct jpeg_compress_struct info;
        struct jpeg_error_mgr failure;
        FILE *file = fopen(path, "wb");

        info.err = jpeg_std_error(&failure);
        jpeg_create_compress(&info);
        jpeg_stdio_dest(&info, file);
        info.image_width = info.image_height = side;
        info.input_components = 3;
        info.in_color_space = JCS_RGB;
        jpeg_set_defaults(&info);
        jpeg_set_quality(&info, 100, TRUE);
        jpeg_start_compress(&info, TRUE);
        while (info.next_scanline < side) {
            JSAMPROW row = pixels + info.next_scanline * side * 3;
            jpeg_write_scanlines(&info, &row, 1);
        }
        jpeg_finish_compress(&info);
        jpeg_destroy_compress(&info);
        fclose(file);
    }
    free(pixels);
}

static void colour_of(int class, int image, unsigned char out[3])
{
    out[0] = (unsigned char)(40 * class + image);
    out[1] = (unsigned char)(100 + 5 * image);
    out[2] = (unsigned char)(200 - 30 * class);
}

static void class_path(int class, int image, char out[64])
{
    snprintf(out, 64, "class%d/%d.%s", class, image, image % 2 != 0 ? "png" : "jpg");
}

static void classes_make(void)
{
    for (int class = 0; class < CLASSES; class ++) {
        char name[64];

        snprintf(name, sizeof name, "class%d", class);
        cr_assert_eq(mkdir(path_of(name), 0700), 0);
        for (int i = 0; i < IMAGES; i++) {
            unsigned char colour[3];

            class_path(class, i, name);
            colour_of(class, i, colour);
            image_put(path_of(name), i % 2 != 0, i < 4 ? 4 : 37, colour);
        }
    }
    file_put(path_of("class1/notes.txt"), "x", 1);
    file_put(path_of("README"), "x", 1);
}

/* The image of a sample in the training or test set: every tenth is for testing. */
static void image_check(const ty_dataset *d, uint64_t sample, int image)
{
    static const float mean[] = {0.485f, 0.456f, 0.406f}, deviation[] = {0.229f, 0.224f, 0.225f};
    float input[3 * SIDE * SIDE];
    unsigned char colour[3];
    int32_t label = -1;

    take(d, sample, input, NULL, &label);
    cr_assert_eq(label, image / IMAGES, "sample %d: label %d", (int)sample, label);
    colour_of(image / IMAGES, image % IMAGES, colour);
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < SIDE * SIDE; i++)
            cr_assert_leq(fabsf(input[c * SIDE * SIDE + i] * deviation[c] + mean[c] -
                                (float)colour[c] / 255.0f),
                          2.5f / 255, "sample %d, channel %d", (int)sample, c);
}

static void parts_check(const char *path, uint32_t threads)
{
    for (int is_test = 0; is_test < 2; is_test++) {
        ty_workload *w = image_network(3);
        ty_dataset *d = NULL;
        ty_error error = {0};
        const uint64_t count = CLASSES * IMAGES, tests = count / 10;

        cr_assert_eq(ty_dataset_open(w, path, is_test, &d, &error), TY_OK, "%s", error.message);
        cr_assert_eq(ty_dataset_prepare(d, &(ty_reading){.threads = threads, .room = 5}, &error),
                     TY_OK);
        cr_assert_eq(ty_dataset_sample_count(d), is_test ? tests : count - tests);
        for (uint64_t s = 0; s < ty_dataset_sample_count(d); s++) {
            for (uint64_t ahead = s; ahead < s + 4; ahead++)
                ty_dataset_expect(d, ahead % ty_dataset_sample_count(d));
            image_check(d, s, (int)(is_test ? 10 * s + 9 : s + s / 9));
        }
        cr_assert_eq(ty_dataset_skipped(d, NULL), 0);
        ty_dataset_close(d);
        network_free(w);
    }
}

Test(sample_files, images_in_folders, .init = folder_make, .fini = folder_remove)
{
    ty_workload *grey = image_network(1);
    ty_dataset *d = NULL;
    float input[SIDE * SIDE];

    classes_make();
    for (uint32_t threads = 0; threads <= 3; threads += 3)
        parts_check(folder, threads);
    cr_assert_eq(ty_dataset_open(grey, folder, false, &d, NULL), TY_OK);
    take(d, 1, input, NULL, NULL); /* (1, 105, 200) by the weights of Rec. 709 or 601 */
    cr_assert(input[0] * 0.229f + 0.485f > 70.0f / 255 &&
              input[0] * 0.229f + 0.485f < 110.0f / 255);
    ty_dataset_close(d);
    network_free(grey);
}

/* All images of the classes in two tar files, classes in either order. */
static void shards_make(void)
{
    unsigned char *tar = malloc(1 << 20);

    cr_assert_eq(mkdir(path_of("shards"), 0700), 0);
    for (int s = 0; s < 2; s++) {
        size_t used = 0;

        for (int i = s * 12; i < s * 12 + 12; i++) {
            char name[64], inside[64], label[16];
            size_t length;
            char *bytes;

            class_path(i / IMAGES, i % IMAGES, name);
            bytes = file_get(path_of(name), &length);
            snprintf(label, sizeof label, "%d\n", i / IMAGES);
            for (int part = 0; part < 3; part++) {
                const bool is_image = part == (i % 2 != 0 ? 0 : 2);

                snprintf(inside, sizeof inside, "set/%04d%s", i,
                         part == 1  ? ".json"
                         : is_image ? strrchr(name, '.')
                                    : ".cls");
                used += tar_put(tar + used, inside,
                                part == 1  ? "{}"
                                : is_image ? bytes
                                           : label,
                                part == 1  ? 2
                                : is_image ? length
                                           : strlen(label));
            }
            ty_free(bytes);
        }
        memset(tar + used, 0, 1024);
        file_put(path_of(s == 0 ? "shards/0.tar" : "shards/1.tar"), tar, used + 1024);
    }
    free(tar);
}

Test(sample_files, images_in_tar_files, .init = folder_make, .fini = folder_remove)
{
    classes_make();
    shards_make();
    parts_check(path_of("shards"), 0);
    parts_check(path_of("shards"), 2);
}

Test(sample_files, parts_in_folders_of_their_own, .init = folder_make, .fini = folder_remove)
{
    ty_workload *w = image_network(3);
    ty_dataset *d = NULL;
    ty_error error = {0};
    char command[1000];

    classes_make();
    snprintf(command, sizeof command,
             "mkdir %s/both && cp -r %s/class? %s/both && mv %s/both %s/val && "
             "mkdir %s/train && mv %s/class0 %s/class1 %s/train",
             folder, folder, folder, folder, folder, folder, folder, folder, folder);
    cr_assert_eq(system(command), 0);
    cr_assert_eq(ty_dataset_open(w, folder, false, &d, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_dataset_sample_count(d), 2 * IMAGES);
    image_check(d, 13, 13);
    ty_dataset_close(d);
    cr_assert_eq(ty_dataset_open(w, folder, true, &d, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_dataset_sample_count(d), 3 * IMAGES);
    image_check(d, 23, 23);
    ty_dataset_close(d);
    network_free(w);
}

/* Truncates a file. */
static void spoil(const char *path)
{
    struct stat about;

    cr_assert_eq(stat(path, &about), 0);
    cr_assert_eq(truncate(path, about.st_size * 2 / 3), 0);
}

Test(sample_files, bad_samples, .init = folder_make, .fini = folder_remove)
{
    ty_workload *w = image_network(3);

    classes_make();
    spoil(path_of("class0/5.png"));
    spoil(path_of("class0/6.jpg"));
    file_put(path_of("class2/0.jpg"), "no image", 8);
    for (uint32_t threads = 0; threads <= 2; threads += 2)
        for (uint32_t most = 0; most <= 3; most++) {
            ty_dataset *d = NULL;
            ty_error error = {0};
            const char *first = NULL;
            ty_status status = TY_OK;

            cr_assert_eq(ty_dataset_open(w, folder, false, &d, &error), TY_OK);
            cr_assert_eq(
                ty_dataset_prepare(
                    d, &(ty_reading){.bad_samples = most, .threads = threads, .room = 8}, &error),
                TY_OK);
            for (uint64_t epoch = 0; epoch < 2; epoch++)
                for (uint64_t s = 0; s < ty_dataset_sample_count(d) && status == TY_OK; s++) {
                    float input[3 * SIDE * SIDE];

                    ty_dataset_expect(d, s);
                    ty_dataset_expect(d, (s + 1) % ty_dataset_sample_count(d));
                    status = ty_dataset_sample(d, s, input, NULL, NULL, &error);
                }
            cr_assert_eq(status, most < 3 ? TY_EPARSE : TY_OK, "%u", most);
            if (most == 3) { /* the next one replaces it */
                image_check(d, 5, 7);
                image_check(d, 6, 7);
                image_check(d, 15, 17);
                cr_assert_eq(ty_dataset_skipped(d, &first), 3);
                cr_assert_not_null(strstr(first, "class0/5.png: damaged PNG"), "%s", first);
            } else {
                cr_assert_not_null(strstr(error.message, most == 0 ? "class0/5.png: damaged PNG"
                                                         : most == 1
                                                             ? "class0/5.png"
                                                             : "class2/0.jpg: found no image"),
                                   "%s", error.message);
                cr_assert_not_null(
                    strstr(error.message, most == 0 ? "--bad-samples N skips" : "expected fewer"),
                    "%s", error.message);
            }
            ty_dataset_close(d);
        }
    network_free(w);
}

/* A last stage has the labels that a first stage reads with its images, without reading images. If
 * samples may be skipped, it reads them like the first stage. */
Test(sample_files, labels_alone, .init = folder_make, .fini = folder_remove)
{
    ty_workload *w = image_network(3);
    ty_dataset *whole = NULL, *labels = NULL;
    float input[3 * SIDE * SIDE];
    ty_error error = {0};
    int32_t expected[64], label;
    uint64_t count;

    classes_make();
    cr_assert_eq(ty_dataset_open(w, folder, false, &whole, &error), TY_OK, "%s", error.message);
    count = ty_dataset_sample_count(whole);
    cr_assert_leq(count, 64);
    for (uint64_t s = 0; s < count; s++)
        take(whole, s, input, NULL, &expected[s]);
    ty_dataset_close(whole);
    cr_assert_eq(ty_dataset_open(w, folder, false, &labels, &error), TY_OK, "%s", error.message);
    spoil(path_of("class0/5.png"));
    for (uint32_t most = 0; most < 2; most++) {
        cr_assert_eq(
            ty_dataset_prepare(
                labels,
                &(ty_reading){.bad_samples = most, .threads = 2, .room = 8, .labels_only = true},
                &error),
            TY_OK, "%s", error.message);
        for (uint64_t s = 0; s < count; s++) {
            ty_dataset_expect(labels, s);
            take(labels, s, NULL, NULL, &label);
            cr_assert_eq(label, expected[most == 1 && s == 5 ? 6 : s], "sample %u", (unsigned)s);
        }
        cr_assert_eq(ty_dataset_skipped(labels, NULL), most);
    }
    cr_assert_eq(ty_dataset_sample(labels, 5, input, NULL, NULL, &error), TY_OK,
                 "whoever asks for an input after all gets one: %s", error.message);
    ty_dataset_close(labels);
    network_free(w);
}
#endif

static void open_refused(const char *path, ty_status wanted, const char *said)
{
    ty_workload *w = image_network(3);
    ty_dataset *d = NULL;
    ty_error error = {0};
    const ty_status status = ty_dataset_open(w, path, false, &d, &error);

    cr_assert_eq(status, wanted, "%d: %s", (int)status, error.message);
    cr_assert_not_null(strstr(error.message, said), "'%s' lacks '%s'", error.message, said);
    network_free(w);
}

Test(sample_files, bad_folders, .init = folder_make, .fini = folder_remove)
{
    unsigned char tar[4096];
    size_t used;

    open_refused(path_of("absent"), TY_EIO, "absent: No such file");
    open_refused(folder, TY_EPARSE, "found no images, expected folders of classes");
    for (int c = 0; c < 4; c++) {
        char name[8];

        snprintf(name, sizeof name, "c%d", c);
        cr_assert_eq(mkdir(path_of(name), 0700), 0);
    }
    open_refused(folder, TY_EPARSE, "found 4 folders of classes, expected at most the network's 3");
    used = tar_put(tar, "1.jpg", "abc", 3);
    file_put(path_of("a.tar"), tar, used);
    open_refused(path_of("a.tar"), TY_EPARSE, "1.jpg: found no .cls beside it");
    used += tar_put(tar + used, "1.cls", "3", 1);
    file_put(path_of("a.tar"), tar, used);
    open_refused(path_of("a.tar"), TY_EPARSE, "1.cls: found class '3', expected 0 to 2");
    file_put(path_of("a.tar"), tar, 600);
    tar[0] = 'x';
    file_put(path_of("b.tar"), tar, 600);
    open_refused(path_of("b.tar"), TY_EPARSE, "b.tar: found no header of tar at byte 0");
    file_put(path_of("b.tar"), "", 0);
    open_refused(path_of("b.tar"), TY_EPARSE, "found an empty file, expected tar");
}
