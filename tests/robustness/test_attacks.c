/* Hostile files: each is refused with a message, in little memory (and, by the test's time limit,
 * in little time). */
#include "failing_malloc.h"
#include "import.h"
#include "ty_topologies.h"
#include "ty_workloads.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define CORPUS TY_TEST_SOURCE "/../fuzz/corpus/"
#define CLUSTERS TY_TEST_SOURCE "/../topologies/data/"

enum {
    DEPTH = 1000000,
    MOST_PER_BYTE = 40,        /* bytes of memory per byte of the file */
    MOST_AT_LEAST = 24 << 20,  /* the catalogue and the libraries' caches */
    MOST_UNPACKED = 320 << 20, /* TY_GUNZIP_LIMIT and related memory */
    BOMB_BLOCKS = 10000,       /* of 1 MiB */
};

/* ---- Readers ----------------------------------------------------------------------------- */

typedef ty_status (*reader)(const char *bytes, size_t length, ty_error *error);

static ty_status read_workload(const char *bytes, size_t length, ty_error *error)
{
    ty_workload *workload = NULL;
    char *terminated = malloc(length + 1); /* terminated as by ty_file_read */
    ty_status status;

    cr_assert_not_null(terminated);
    memcpy(terminated, bytes, length);
    terminated[length] = '\0';
    status = ty_import_bytes("input", terminated, length, NULL, &workload, NULL, error);
    free(terminated);
    ty_workload_free(workload);
    return status;
}

static ty_status read_cluster(const char *bytes, size_t length, ty_error *error)
{
    ty_cluster_import_options options = {.host = "dgx-a100"};
    ty_cluster *cluster = NULL;
    ty_status status =
        ty_cluster_import_text(bytes, length, "input", &options, &cluster, NULL, error);

    ty_cluster_free(cluster);
    return status;
}

static ty_status read_cluster_json(const char *bytes, size_t length, ty_error *error)
{
    char *text = ty_strndup(bytes, length);
    ty_cluster *cluster = NULL;
    ty_status status = ty_cluster_parse(text, "input", &cluster, error);

    ty_free(text);
    ty_cluster_free(cluster);
    return status;
}

static void write_file(char *path, const char *bytes, size_t length)
{
    int file = mkstemp(path);

    cr_assert_geq(file, 0);
    cr_assert_eq(write(file, bytes, length), (ssize_t)length);
    close(file);
}

static ty_status read_trace(const char *bytes, size_t length, ty_error *error)
{
    char path[] = "/tmp/trainyard-test-XXXXXX";
    ty_profile *profile = NULL;
    ty_status status;

    write_file(path, bytes, length);
    status = ty_profile_import_kineto(path, &profile, NULL, error);
    unlink(path);
    if (status == TY_OK)
        ty_profile_free(profile);
    return status;
}

static ty_status read_file(const char *bytes, size_t length, ty_error *error)
{
    char path[] = "/tmp/trainyard-test-XXXXXX";
    ty_workload *workload = NULL;
    ty_status status;

    write_file(path, bytes, length);
    status = ty_workload_import(path, NULL, &workload, NULL, error);
    unlink(path);
    ty_workload_free(workload);
    return status;
}

/* ---- Expected results -------------------------------------------------------------------- */

/* @param part of the expected message, or NULL */
static void refuse(reader read, const char *what, const char *bytes, size_t length,
                   const char *part)
{
    size_t most = length * MOST_PER_BYTE + MOST_AT_LEAST;
    ty_error error = {0};
    memory_use use;
    ty_status status;

    memory_watch();
    status = read(bytes, length, &error);
    use = memory_watched();
    cr_assert(status == TY_EPARSE || status == TY_EUNSUPPORTED || status == TY_ELIMIT,
              "%s: %s (%s)", what, ty_status_name(status), error.message);
    cr_assert_gt(strlen(error.message), 10, "%s", what);
    if (part != NULL)
        cr_assert_not_null(strstr(error.message, part), "%s: \"%s\", expected \"%s\"", what,
                           error.message, part);
    cr_assert_eq(use.blocks, 0, "%s: %ld blocks leaked", what, use.blocks);
    cr_assert_leq(use.peak_bytes, most, "%s: %zu bytes for %zu", what, use.peak_bytes, length);
}

typedef struct sample {
    reader read;
    const char *path;
} sample;

static const sample samples[] = {
    {read_workload, CORPUS "hf/llama-2-7b.json"},
    {read_workload, CORPUS "calculon/tiny.json"},
    {read_workload, CORPUS "zoo/decoder.json"},
    {read_workload, CORPUS "workload/opaque.json"},
    {read_workload, CORPUS "megatron/gpt-345m.sh"},
    {read_workload, CORPUS "megatron/mixtral.yaml"},
    {read_workload, CORPUS "pipedream/chain.graph.txt"},
    {read_trace, CORPUS "kineto/steps.json"},
    {read_cluster_json, CORPUS "cluster/pair.json"},
    {read_cluster, CLUSTERS "nccl.xml"},
    {read_cluster, CORPUS "nccl/rccl.xml"},
    {read_cluster, CLUSTERS "smi.txt"},
    {read_cluster, CLUSTERS "hwloc.xml"},
    {read_cluster, CLUSTERS "topology.conf"},
    {read_cluster, CLUSTERS "topology.yaml"},
    {read_cluster, CLUSTERS "ibnetdiscover.txt"},
    {read_cluster, CLUSTERS "platform.xml"},
};
enum { SAMPLE_COUNT = sizeof samples / sizeof samples[0] };

static char *content(const char *path, size_t *length)
{
    char *bytes = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_file_read(path, 0, &bytes, length, &error), TY_OK, "%s", error.message);
    return bytes;
}

/* One-time allocations of libraries are not leaks. */
static void warm_up(void)
{
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        size_t length;
        char *bytes = content(samples[i].path, &length);
        ty_error error = {0};
        (void)samples[i].read(bytes, length, &error);
        ty_free(bytes);
    }
}
TestSuite(attacks, .init = warm_up);

/* ---- Encodings --------------------------------------------------------------------------- */

Test(attacks, samples_are_read)
{
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        size_t length;
        char *bytes = content(samples[i].path, &length);
        ty_error error = {0};
        cr_assert_eq(samples[i].read(bytes, length, &error), TY_OK, "%s: %s", samples[i].path,
                     error.message);
        ty_free(bytes);
    }
}

/* UTF-16 in both byte orders, with and without the mark. */
Test(attacks, utf_16)
{
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        size_t length;
        char *bytes = content(samples[i].path, &length), *wide = malloc(2 * length + 2);
        for (size_t first = 0; first < 2; first++) {
            memcpy(wide, first == 0 ? "\xff\xfe" : "\xfe\xff", 2);
            for (size_t at = 0; at < length; at++) {
                wide[2 + 2 * at + first] = bytes[at];
                wide[2 + 2 * at + 1 - first] = '\0';
            }
            if (samples[i].read == read_cluster_json) /* takes a C string */
                continue;
            refuse(samples[i].read, samples[i].path, wide, 2 * length + 2, NULL);
            refuse(samples[i].read, samples[i].path, wide + 2, 2 * length, NULL);
        }
        free(wide);
        ty_free(bytes);
    }
}

/* A NUL after the file's first half; the rest after it may be anything. */
Test(attacks, nul)
{
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        size_t length;
        char *bytes = content(samples[i].path, &length);
        bytes[length / 2] = '\0';
        refuse(samples[i].read, samples[i].path, bytes, length, NULL);
        ty_free(bytes);
    }
}

/* A byte that UTF-8 never contains, at every location: accepted or refused, with text in the
 * message. */
Test(attacks, invalid_utf_8)
{
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        size_t length;
        char *bytes = content(samples[i].path, &length);
        for (size_t at = 0; at < length; at += 1 + length / 50) {
            char kept = bytes[at];
            ty_error error = {0};
            bytes[at] = '\xff';
            if (samples[i].read(bytes, length, &error) != TY_OK)
                for (const char *c = error.message; *c != '\0'; c++)
                    cr_assert((unsigned char)*c < 0x80 && *c >= ' ', "%s: \"%s\"", samples[i].path,
                              error.message);
            bytes[at] = kept;
        }
        ty_free(bytes);
    }
}

/* ---- Nesting ----------------------------------------------------------------------------- */

Test(attacks, nesting)
{
    static const struct {
        reader read;
        const char *head, *open;
    } rows[] = {
        {read_workload, "{\"model_type\": \"llama\", \"a\": ", "["},
        {read_workload, "", "["},
        {read_workload, "", "{\"a\":"},
        {read_workload, "{\"schema\": \"trainyard.zoo/1\", \"a\": ", "["},
        {read_trace, "{\"traceEvents\": ", "["},
        {read_trace, "{\"traceEvents\": [{\"args\": ", "{\"a\":"},
        {read_cluster_json, "{\"schema\": \"trainyard.cluster/1\", \"a\": ", "["},
        {read_cluster, "{\"apiVersion\": \"v1\", \"items\": ", "["},
        {read_cluster, "<system version=\"1\"><cpu>", "<pci busid=\"a\">"},
        {read_cluster, "<topology version=\"2.0\">", "<object type=\"Bridge\">"},
        {read_cluster, "<platform version=\"4.1\">", "<zone id=\"a\">"},
        {read_cluster, "switches: x\nblocks: ", "["},
        {read_cluster, "npus_count: [1]\ntopology: ", "{a: "},
        {read_cluster, "- topology: ", "- "},
        {read_cluster, "SwitchName=a Nodes=", "n["},
        {read_workload, "--num-layers ", "$(("},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_text text = {0};
        ty_text_add(&text, rows[i].head);
        for (int d = 0; d < DEPTH; d++)
            ty_text_add(&text, rows[i].open);
        cr_assert_eq(ty_text_check(&text, NULL), TY_OK);
        refuse(rows[i].read, rows[i].head[0] != '\0' ? rows[i].head : rows[i].open, text.data,
               text.length, NULL);
        ty_text_clear(&text);
    }
}

/* Nested messages of protocol buffers, within all declared lengths. */
Test(attacks, nested_messages)
{
    enum { LEVELS = 100000, FIELD = 0x3a /* 7, of bytes: an ONNX graph, a Chakra attribute */ };
    unsigned char *bytes = malloc(6 * LEVELS);
    size_t at = 6 * LEVELS;

    for (size_t inner = 0; at >= 6; inner = 6 * (size_t)LEVELS - at) {
        at -= 6;
        bytes[at] = FIELD;
        for (int k = 0; k < 5; k++) /* a length in five bytes */
            bytes[at + 1 + k] = (unsigned char)((inner >> 7 * k & 0x7f) | (k < 4 ? 0x80 : 0));
    }
    refuse(read_workload, "nested messages", (char *)bytes, 6 * LEVELS, NULL);
    free(bytes);
}

/* ---- Entities and aliases ---------------------------------------------------------------- */

Test(attacks, entities)
{
    static const char laughs[] =
        "<!DOCTYPE x [<!ENTITY a \"ha\">"
        "<!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;\"><!ENTITY c \"&b;&b;&b;&b;&b;&b;&b;&b;&b;\">"
        "<!ENTITY d \"&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;\"><!ENTITY e \"&d;&d;&d;&d;&d;&d;&d;&d;&d;\">"
        "<!ENTITY f \"&e;&e;&e;&e;&e;&e;&e;&e;&e;&e;\"><!ENTITY g \"&f;&f;&f;&f;&f;&f;&f;&f;&f;\">"
        "<!ENTITY h \"&g;&g;&g;&g;&g;&g;&g;&g;&g;&g;\"><!ENTITY i "
        "\"&h;&h;&h;&h;&h;&h;&h;&h;&h;\">]>";
    static const char file[] = "<!DOCTYPE x [<!ENTITY i SYSTEM \"file:///etc/passwd\">]>";
    static const char parameter[] =
        "<!DOCTYPE x [<!ENTITY % p SYSTEM \"http://127.0.0.1:9/x.dtd\"> %p;]>";
    static const char *const heads[] = {laughs, file, parameter};
    static const char *const roots[] = {
        "<system version=\"1\"><cpu numaid=\"&i;\">&i;</cpu></system>",
        "<topology version=\"2.0\"><object type=\"&i;\">&i;</object></topology>",
        "<platform version=\"4.1\"><host id=\"&i;\">&i;</host></platform>"};

    for (size_t h = 0; h < 3; h++)
        for (size_t r = 0; r < 3; r++) {
            char text[2000];
            int length = snprintf(text, sizeof text, "%s%s", heads[h], roots[r]);
            refuse(read_cluster, roots[r], text, (size_t)length, "entity");
        }
}

/* An undeclared entity, and a document type that would have to be downloaded: the first is
 * malformed, the second is ignored. */
Test(attacks, document_types)
{
    static const char undeclared[] = "<system version=\"1\"><cpu numaid=\"&x;\"/></system>";
    size_t length;
    char *platform = content(CLUSTERS "platform.xml", &length);

    refuse(read_cluster, "undeclared entity", undeclared, sizeof undeclared - 1, "malformed");
    cr_assert_not_null(strstr(platform, "SYSTEM \"https://"));
    cr_assert_eq(read_cluster(platform, length, NULL), TY_OK);
    ty_free(platform);
}

Test(attacks, aliases)
{
    static const char *const texts[] = {
        "- topology: x\n  a: &a [x, x]\n  b: &b [*a, *a]\n  tree: {switches: [*b]}\n",
        "- topology: &a x\n  tree: {switches: [{switch: *a, nodes: n1}]}\n",
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        refuse(read_cluster, texts[i], texts[i], strlen(texts[i]), "alias");
}

/* ---- Numbers and keys -------------------------------------------------------------------- */

/* One change of a sample. */
typedef struct change {
    reader read;
    const char *path, *from, *to;
} change;

static void refuse_change(const change *c)
{
    size_t length, rest;
    char *bytes = content(c->path, &length), *at = strstr(bytes, c->from);
    char *changed = malloc(length + strlen(c->to) + 1), what[200];

    cr_assert_not_null(at, "%s has no %s", c->path, c->from);
    rest = length - (size_t)(at - bytes) - strlen(c->from);
    memcpy(changed, bytes, (size_t)(at - bytes));
    memcpy(changed + (at - bytes), c->to, strlen(c->to));
    memcpy(changed + (at - bytes) + strlen(c->to), at + strlen(c->from), rest);
    snprintf(what, sizeof what, "%.100s: %.80s", strrchr(c->path, '/'), c->to);
    refuse(c->read, what, changed, (size_t)(at - bytes) + strlen(c->to) + rest, NULL);
    free(changed);
    ty_free(bytes);
}

Test(attacks, numbers)
{
    static const change rows[] = {
        {read_workload, CORPUS "hf/llama-2-7b.json", "\"hidden_size\": ", "\"hidden_size\": 1e999"},
        {read_workload, CORPUS "hf/llama-2-7b.json", "\"hidden_size\": ", "\"hidden_size\": -"},
        {read_workload, CORPUS "hf/llama-2-7b.json",
         "\"hidden_size\": ", "\"hidden_size\": 99999999999999999999"},
        {read_workload, CORPUS "hf/llama-2-7b.json", "\"hidden_size\": ", "\"hidden_size\": 0.5e0"},
        {read_workload, CORPUS "megatron/gpt-345m.sh", "--num-layers ", "--num-layers -"},
        {read_workload, CORPUS "megatron/gpt-345m.sh", "--num-layers ", "--num-layers 1e999"},
        {read_workload, CORPUS "calculon/tiny.json", "\"hidden\": ", "\"hidden\": -"},
        {read_workload, CORPUS "calculon/tiny.json", "\"hidden\": ", "\"hidden\": 1e999"},
        {read_workload, CORPUS "pipedream/chain.graph.txt",
         "forward_compute_time=", "forward_compute_time=-"},
        {read_workload, CORPUS "pipedream/chain.graph.txt",
         "forward_compute_time=", "forward_compute_time=1e999"},
        {read_workload, CORPUS "workload/opaque.json",
         "\"forward_flop\": ", "\"forward_flop\": -1"},
        {read_workload, CORPUS "workload/opaque.json",
         "\"forward_flop\": ", "\"forward_flop\": 1e999"},
        {read_cluster_json, CORPUS "cluster/pair.json",
         "\"bandwidth_bytes_per_s\": ", "\"bandwidth_bytes_per_s\": -"},
        {read_cluster_json, CORPUS "cluster/pair.json",
         "\"bandwidth_bytes_per_s\": ", "\"bandwidth_bytes_per_s\": 1e999"},
        {read_cluster, CLUSTERS "nccl.xml", "speed=\"200000\"", "speed=\"1e999\""},
        {read_cluster, CLUSTERS "nccl.xml", "speed=\"200000\"", "speed=\"fast\""},
        {read_cluster, CLUSTERS "nccl.xml", "count=\"6\"", "count=\"99999999999\""},
        {read_cluster, CLUSTERS "nccl.xml", "count=\"6\"", "count=\"-6\""},
        {read_cluster, CLUSTERS "smi.txt", "NV4", "NV99999999999"},
        {read_cluster, CLUSTERS "topology.conf", "a[01-03]", "a[1-99999999999]"},
        {read_cluster, CLUSTERS "topology.conf", "a[01-03]", "a[3--1]"},
        {read_cluster, CLUSTERS "topology.yaml", "a[01-03]", "a[1-9][1-999][1-9999][1-9999]"},
        {read_cluster, CLUSTERS "ibnetdiscover.txt", "4xHDR", "99999999999xHDR"},
        {read_cluster, CLUSTERS "ibnetdiscover.txt", "4xHDR", "-4xHDR"},
        {read_cluster, CLUSTERS "platform.xml", "\"1GBps\"", "\"1e999GBps\""},
        {read_cluster, CLUSTERS "platform.xml", "\"1GBps\"", "\"-1GBps\""},
        {read_cluster, CLUSTERS "platform.xml", "\"1GBps\"", "\"nanGBps\""},
        {read_cluster, CLUSTERS "platform.xml", "\"100Gf\"", "\"-100Gf\""},
        {read_cluster, CLUSTERS "fat-tree.xml", "0-7", "0-99999999999"},
        {read_cluster, CLUSTERS "fat-tree.xml", "2;2,4;1,2;1,1", "2;2,4;99999,99999;1,1"},
        {read_cluster, CLUSTERS "dragonfly.xml", "3,4;2,5;3,2;2", "3,4;2,5;99999999,2;2"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        refuse_change(&rows[i]);
}

Test(attacks, keys_twice)
{
    static const change rows[] = {
        {read_workload, CORPUS "hf/llama-2-7b.json", "{", "{\"hidden_size\": 1,"},
        {read_workload, CORPUS "calculon/tiny.json", "{", "{\"hidden\": 1,"},
        {read_workload, CORPUS "zoo/decoder.json", "{", "{\"schema\": \"trainyard.zoo/1\","},
        {read_workload, CORPUS "pipedream/chain.graph.txt",
         "forward_compute_time=", "forward_compute_time=1, forward_compute_time="},
        {read_cluster_json, CORPUS "cluster/pair.json", "{", "{\"name\": \"x\","},
        {read_cluster, CLUSTERS "nccl.xml", "numaid=\"0\"", "numaid=\"0\" numaid=\"0\""},
        {read_cluster, CLUSTERS "hwloc.xml", "gp_index=\"1\"", "gp_index=\"1\" gp_index=\"1\""},
        {read_cluster, CLUSTERS "platform.xml", "id=\"a\"", "id=\"a\" id=\"a\""},
        {read_cluster, CLUSTERS "topology.yaml",
         "block_sizes:", "block_sizes: 1\n    block_sizes:"},
        {read_cluster, CLUSTERS "topology.conf", "SwitchName=rack1",
         "SwitchName=rack1 Nodes=x\nSwitchName=rack1"},
        {read_cluster, CLUSTERS "ibnetdiscover.txt", "Switch",
         "Switch\t40 \"S-0000000000000010\"\nSwitch"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        refuse_change(&rows[i]);
}

/* ---- Bombs ------------------------------------------------------------------------------- */

/* A gzip file of `blocks` blocks of 1 MiB of one byte: a flushed block ends at a byte boundary and
 * can be repeated. */
static char *make_bomb(char byte, size_t blocks, size_t *length)
{
    enum { BLOCK = 1 << 20, HEADER = 10 };
    static char plain[BLOCK];
    unsigned char packed[8192], *bomb;
    z_stream stream = {.next_in = (Bytef *)plain,
                       .avail_in = BLOCK,
                       .next_out = packed,
                       .avail_out = sizeof packed};
    size_t size;

    memset(plain, byte, BLOCK);
    cr_assert_eq(deflateInit2(&stream, 9, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY), Z_OK);
    cr_assert_eq(deflate(&stream, Z_FULL_FLUSH), Z_OK);
    size = sizeof packed - stream.avail_out;
    deflateEnd(&stream);
    *length = HEADER + size * blocks;
    bomb = malloc(*length);
    memcpy(bomb, "\x1f\x8b\x08\0\0\0\0\0\0\xff", HEADER);
    for (size_t i = 0; i < blocks; i++)
        memcpy(bomb + HEADER + i * size, packed, size);
    return (char *)bomb;
}

Test(attacks, zip_bombs)
{
    static const struct {
        reader read;
        char byte;
        const char *part;
    } rows[] = {
        {read_file, '\0', "more than"},
        {read_file, ' ', "more than"},
        {read_file, '[', "more than"},
        {read_trace, '\0', NULL},
        {read_trace, '[', NULL},
        {read_cluster, ' ', "none of the formats"}, /* never unpacked */
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t length;
        char *bomb = make_bomb(rows[i].byte, BOMB_BLOCKS, &length);
        ty_error error = {0};
        memory_use use;
        ty_status status;
        memory_watch();
        status = rows[i].read(bomb, length, &error);
        use = memory_watched();
        cr_assert(status == TY_EPARSE || status == TY_ELIMIT, "%zu: %s", i, error.message);
        if (rows[i].part != NULL)
            cr_assert_not_null(strstr(error.message, rows[i].part), "%s", error.message);
        cr_assert_leq(use.peak_bytes, MOST_UNPACKED, "%zu: %zu bytes", i, use.peak_bytes);
        free(bomb);
    }
}
