/* Every reader and writer of workloads/ and topologies/, with the n-th allocation failing, for all
 * n (in the quick form for the first fifty, then at each following fiftieth): the project's,
 * libxml2's, libyaml's, cJSON's, zlib's, igraph's and the C library's alike. The result is
 * TY_ENOMEM; nothing is leaked, and no partial file is left. */
#include "../quick.h"
#include "failing_malloc.h"
#include "gunzip.h"
#include "import.h"
#include "importer.h"
#include "ty_workloads.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define CORPUS TY_TEST_SOURCE "/../fuzz/corpus/"
#define CLUSTERS TY_TEST_SOURCE "/../topologies/data/"

enum { MOST_ALLOCATIONS = 100000 };

/* A trial: reads (or writes) `text`. */
typedef struct trial {
    const char *name;
    const char *text; /* content of the file, or a line; NULL: no file */
    size_t length;
    const void *object;
    bool is_long; /* one kind of failure is enough */
} trial;

/* The possible outcomes. */
typedef struct outcome {
    ty_workload *workload;
    ty_cluster *cluster;
    ty_profile *profile;
    catalogue *catalogue;
    ty_import_report report;
    ty_import_notes notes;
    char *bytes;
    size_t length;
} outcome;
typedef ty_status (*attempt_function)(const trial *t, outcome *o, ty_error *error);

static void clear(outcome *o)
{
    ty_workload_free(o->workload);
    ty_cluster_free(o->cluster);
    if (o->profile != NULL)
        ty_profile_free(o->profile);
    catalogue_free(o->catalogue);
    ty_import_report_clear(&o->report);
    ty_import_notes_clear(&o->notes);
    ty_free(o->bytes);
    *o = (outcome){0};
}

static char *text_of(const outcome *o)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    char *out = NULL;

    if (o->workload != NULL)
        ty_workload_to_json(o->workload, &writer, NULL);
    if (o->cluster != NULL)
        ty_cluster_to_json(o->cluster, &writer, NULL);
    if (o->profile != NULL)
        ty_profile_to_json(o->profile, &writer, NULL);
    if (o->notes.text != NULL)
        ty_text_add(&text, o->notes.text);
    for (uint32_t i = 0; i < o->report.note_count; i++)
        ty_text_add(&text, o->report.notes[i]);
    if (o->bytes != NULL)
        ty_text_append(&text, o->bytes, o->length);
    cr_assert_eq(ty_text_take(&text, &out, NULL), TY_OK);
    return out;
}

/* TY_ENOMEM, or the same result as without failures; only a hint in a message may be missing. */
static void check_outcome(const trial *t, long n, ty_status status, const ty_error *error,
                          const outcome *o, const char *whole)
{
    char *text;

    if (status != TY_OK) {
        cr_assert_eq(status, TY_ENOMEM, "%s: allocation %ld: %s (%s), expected TY_ENOMEM", t->name,
                     n, ty_status_name(status), error->message);
        cr_assert_neq(error->message[0], '\0', "%s: allocation %ld: no message", t->name, n);
        return;
    }
    text = text_of(o);
    cr_assert_str_eq(text, whole, "%s: allocation %ld: something is missing", t->name, n);
    ty_free(text);
}

static long try_all(attempt_function attempt, const trial *t, bool do_all)
{
    ty_error error = {0};
    outcome o = {0};
    ty_status status = attempt(t, &o, &error); /* one-time allocations of libraries */
    char *whole;
    long n = 0;
    bool has_failed = true;

    cr_assert_eq(status, TY_OK, "%s: %s", t->name, error.message);
    whole = text_of(&o);
    clear(&o);
    while (has_failed && n < MOST_ALLOCATIONS) {
        memory_use use;
        error = (ty_error){0};
        memory_watch();
        n += is_quick() ? 1 + n / 50 : 1;
        memory_fail(n, do_all);
        status = attempt(t, &o, &error);
        memory_fail(0, false);
        has_failed = memory_has_failed() && (memory_sees_all() || status != TY_OK);
        memory_pause();
        check_outcome(t, n, status, &error, &o, whole);
        memory_resume();
        clear(&o);
        use = memory_watched();
        cr_assert_eq(use.blocks, 0, "%s: allocation %ld: %ld blocks leaked", t->name, n,
                     use.blocks);
    }
    cr_assert_lt(n, MOST_ALLOCATIONS, "%s", t->name);
    ty_free(whole);
    return n;
}

/* Returns the number of allocations. */
static long survive(attempt_function attempt, const trial *t)
{
    long alone = try_all(attempt, t, false);

    if (!t->is_long)
        (void)try_all(attempt, t, true);
    return alone;
}

static trial trial_of_file(const char *path)
{
    trial t = {.name = path};
    char *bytes = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_file_read(path, 0, &bytes, &t.length, &error), TY_OK, "%s", error.message);
    t.text = bytes;
    return t;
}

static void survive_files(attempt_function attempt, const char *const *paths, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        trial t = trial_of_file(paths[i]);
        cr_assert_gt(survive(attempt, &t), 5, "%s", paths[i]);
        ty_free((char *)t.text);
    }
}
#define SURVIVE_FILES(attempt, paths) survive_files(attempt, paths, sizeof paths / sizeof paths[0])

/* ---- Workloads --------------------------------------------------------------------------- */

static ty_status import_workload(const trial *t, outcome *o, ty_error *error)
{
    return ty_import_bytes("input", t->text, t->length, NULL, &o->workload, &o->report, error);
}

Test(allocation, workload_importers)
{
    static const char *const paths[] = {
        CORPUS "hf/bert-base.json",
        CORPUS "hf/t5-base.json",
        CORPUS "hf/tiny.json",
        CORPUS "hf/deepseek-v3.json",
        CORPUS "megatron/llama-2-7b.txt",
        CORPUS "megatron/mixtral.yaml",
        CORPUS "calculon/tiny.json",
        CORPUS "pipedream/chain.graph.txt",
        CORPUS "pipedream/branches.graph.txt",
        CORPUS "onnx/block.onnx",
        CORPUS "onnx/pool.onnx",
        CORPUS "onnx/sequence.onnx",
        CORPUS "chakra/mlp.et",
        CORPUS "workload/opaque.json",
        CORPUS "workload/tiny_cnn.json",
    };
    SURVIVE_FILES(import_workload, paths);
}

static ty_status import_beside_model(const trial *t, outcome *o, ty_error *error)
{
    return ty_import_bytes("input", t->text, t->length,
                           &(ty_import_options){.model = "mlp", .open_model = ty_workload_open},
                           &o->workload, &o->report, error);
}

Test(allocation, deepspeed)
{
    static const char *const paths[] = {CORPUS "deepspeed/zero.json", CORPUS "deepspeed/sgd.json"};
    SURVIVE_FILES(import_beside_model, paths);
}

Test(allocation, zoo_statements)
{
    static const char *const paths[] = {
        CORPUS "zoo/residual.json",   CORPUS "zoo/transformer.json",
        CORPUS "zoo/encoder.json",    CORPUS "zoo/decoder.json",
        CORPUS "zoo/sequential.json", CORPUS "zoo/encoder_decoder.json",
        CORPUS "zoo/awd-lm.json",     CORPUS "zoo/squeezenet.json",
        CORPUS "zoo/unet.json",
    };
    SURVIVE_FILES(import_workload, paths);
}

static ty_status open_workload(const trial *t, outcome *o, ty_error *error)
{
    return ty_workload_open(t->text, &o->workload, error);
}

Test(allocation, workload_by_name)
{
    survive(open_workload, &(trial){.name = "name", .text = "mlp batch=7"});
}

static ty_status unpack(const trial *t, outcome *o, ty_error *error)
{
    o->bytes = ty_alloc(t->length, 1);
    TY_TRY(ty_check_memory(o->bytes != NULL, error));
    memcpy(o->bytes, t->text, t->length);
    o->length = t->length;
    return ty_gunzip("input", &o->bytes, &o->length, error);
}

/* `bytes` zeros, packed. */
static trial pack_zeros(size_t bytes)
{
    static char zeros[65536];
    z_stream stream = {0};
    size_t room = bytes / 500 + 1000;
    unsigned char *packed = malloc(room);

    cr_assert_eq(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_out = packed;
    stream.avail_out = (uInt)room;
    for (size_t done = 0; done < bytes; done += sizeof zeros) {
        stream.next_in = (Bytef *)zeros;
        stream.avail_in = sizeof zeros;
        cr_assert_eq(deflate(&stream, done + sizeof zeros < bytes ? Z_NO_FLUSH : Z_FINISH),
                     done + sizeof zeros < bytes ? Z_OK : Z_STREAM_END);
    }
    room -= stream.avail_out;
    deflateEnd(&stream);
    return (trial){.name = "gzip", .text = (char *)packed, .length = room};
}

Test(allocation, gunzip)
{
    trial t = pack_zeros(1 << 20);

    survive(unpack, &t);
    free((char *)t.text);
}

static ty_status import_kineto(const trial *t, outcome *o, ty_error *error)
{
    return ty_profile_import_kineto(t->name, &o->profile, &o->report, error);
}

static void write_packed(const char *path, const trial *plain)
{
    gzFile file = gzopen(path, "wb");

    cr_assert_not_null(file);
    cr_assert_eq(gzwrite(file, plain->text, (unsigned)plain->length), (int)plain->length);
    cr_assert_eq(gzclose(file), Z_OK);
}

Test(allocation, kineto)
{
    static const char *const paths[] = {CORPUS "kineto/events.json", CORPUS "kineto/steps.json"};
    trial plain = trial_of_file(paths[1]);
    char packed[] = "/tmp/trainyard-test-XXXXXX";
    int file = mkstemp(packed);

    SURVIVE_FILES(import_kineto, paths);
    cr_assert_geq(file, 0);
    close(file);
    write_packed(packed, &plain);
    survive(import_kineto, &(trial){.name = packed});
    unlink(packed);
    ty_free((char *)plain.text);
}

static ty_status cut_workload(const trial *t, outcome *o, ty_error *error)
{
    uint32_t *cuts = NULL, count = 0;
    ty_status status = ty_workload_cuts(t->object, &cuts, &count, error);

    if (status == TY_OK) {
        o->bytes = (char *)cuts;
        o->length = count * sizeof *cuts;
    }
    return status;
}

static ty_workload *open_mlp(void)
{
    ty_workload *workload = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_workload_open("mlp", &workload, &error), TY_OK, "%s", error.message);
    return workload;
}

Test(allocation, workload_cuts)
{
    ty_workload *workload = open_mlp();

    survive(cut_workload, &(trial){.name = "cuts", .object = workload});
    ty_workload_free(workload);
}

/* ---- Clusters ---------------------------------------------------------------------------- */

static catalogue *known_catalogue(void)
{
    catalogue *known = NULL;
    ty_error error = {0};

    cr_assert_eq(catalogue_load(&known, &error), TY_OK, "%s", error.message);
    return known;
}

static ty_status import_cluster(const trial *t, outcome *o, ty_error *error)
{
    ty_cluster_import_options options = {.host = "dgx-a100", .hosts = 2};

    return import_with(t->object, t->text, t->length, "input", &options, &o->cluster, &o->notes,
                       error);
}

Test(allocation, cluster_importers)
{
    static const char *const paths[] = {
        CLUSTERS "nccl.xml",      CLUSTERS "smi.txt",         CLUSTERS "hwloc.xml",
        CLUSTERS "topology.conf", CLUSTERS "topology.yaml",   CLUSTERS "ibnetdiscover.txt",

        CLUSTERS "platform.xml",  CLUSTERS "fat-tree.xml",    CLUSTERS "dragonfly.xml",
        CORPUS "nccl/rccl.xml",   CORPUS "simgrid/torus.xml", CORPUS "simgrid/backbone.xml",
    };
    catalogue *known = known_catalogue();

    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        trial t = trial_of_file(paths[i]);
        t.object = known;
        survive(import_cluster, &t);
        ty_free((char *)t.text);
    }
    catalogue_free(known);
}

static ty_status describe_cluster(const trial *t, outcome *o, ty_error *error)
{
    return describe_with(t->object, t->text, &o->cluster, error);
}

Test(allocation, cluster_descriptions)
{
    static const char *const lines[] = {
        "dgx1-v100",
        "leaf:2 host:1 gpu:2 @h100 nvlink4 ndr400 oversub:2",
        "torus:2x2 @tpu-v4 ici-v4",
        "[1x p100-server] + [1x p100-server] wan10",
        "1x p100-server + 1x NC24s_v3",
    };
    catalogue *known = known_catalogue();

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        survive(describe_cluster, &(trial){.name = lines[i], .text = lines[i], .object = known});
    catalogue_free(known);
}

static ty_status load_catalogue(const trial *t, outcome *o, ty_error *error)
{
    (void)t;
    return catalogue_load(&o->catalogue, error);
}

Test(allocation, catalogue)
{
    survive(load_catalogue, &(trial){.name = "catalogue", .is_long = true});
}

static ty_status parse_cluster(const trial *t, outcome *o, ty_error *error)
{
    return ty_cluster_parse(t->text, "input", &o->cluster, error);
}

Test(allocation, cluster_files)
{
    static const char *const paths[] = {CORPUS "cluster/pair.json", CORPUS "cluster/rails.json"};

    SURVIVE_FILES(parse_cluster, paths);
}

static ty_cluster *describe(const char *line)
{
    ty_cluster *cluster = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_cluster_open(line, NULL, &cluster, &error), TY_OK, "%s", error.message);
    return cluster;
}

static ty_status export_cluster(const trial *t, outcome *o, ty_error *error)
{
    ty_text text = {0};
    ty_status status = ty_cluster_export(t->object, t->text, NULL, &text, error);

    o->length = text.length;
    if (status == TY_OK)
        status = ty_text_take(&text, &o->bytes, error);
    ty_text_clear(&text);
    return status;
}

Test(allocation, cluster_exporters)
{
    static const char *const formats[] = {"dot", "slurm", "nccl"};
    ty_cluster *cluster = describe("2x p100-server");

    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        survive(export_cluster, &(trial){.name = formats[i],
                                         .text = formats[i],
                                         .object = cluster,
                                         .is_long = strcmp(formats[i], "nccl") == 0});
    ty_cluster_free(cluster);
}

static ty_status bisect_cluster(const trial *t, outcome *o, ty_error *error)
{
    double bandwidth;

    (void)o;
    return ty_cluster_bisection(t->object, &bandwidth, error);
}

Test(allocation, cluster_bisection)
{
    ty_cluster *cluster = describe("2x p100-server");

    survive(bisect_cluster, &(trial){.name = "bisection", .object = cluster});
    ty_cluster_free(cluster);
}

/* Only the project's own allocations: igraph counts automorphisms with GMP, which ends the program
 * when memory runs out. */
Test(allocation, cluster_findings)
{
    ty_cluster *cluster = describe("2x p100-server");
    ty_status status = TY_ENOMEM;
    long n;

    for (n = 1; status != TY_OK && n < MOST_ALLOCATIONS; n++) {
        ty_finding *findings = NULL;
        ty_error error = {0};
        uint32_t count;
        ty_memory_fail_after(n);
        status = ty_cluster_examine(cluster, &findings, &count, &error);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM, "allocation %ld: %s", n, error.message);
        ty_free(findings);
    }
    cr_assert_gt(n, 10);
    ty_cluster_free(cluster);
}

/* ---- Written files -------------------------------------------------------------- */

/* The folder contains exactly that file or nothing: no temporary and no truncated file. */
static void check_folder(const char *folder, const char *file, size_t length, bool is_there,
                         const char *name)
{
    DIR *directory = opendir(folder);
    uint32_t count = 0;

    cr_assert_not_null(directory);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(directory);
    cr_assert_eq(count, is_there ? 1u : 0u, "%s: %u files", name, count);
    if (is_there) {
        trial t = trial_of_file(file);
        cr_assert_eq(t.length, length, "%s: %zu bytes of %zu", name, t.length, length);
        ty_free((char *)t.text);
    }
}

typedef struct written {
    const void *object;
    ty_status (*write)(const void *object, const char *path, ty_error *error);
    const char *name;
} written;

static ty_status write_chakra(const void *object, const char *path, ty_error *error)
{
    return ty_workload_export_chakra(object, path, error);
}

static ty_status write_text(ty_text *text, const char *path, ty_error *error)
{
    ty_status status = ty_text_check(text, error);

    if (status == TY_OK)
        status = ty_file_write(path, text->data, text->length, error);
    ty_text_clear(text);
    return status;
}

static ty_status write_workload(const void *object, const char *path, ty_error *error)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);

    ty_workload_to_json(object, &writer, NULL);
    return write_text(&text, path, error);
}

static ty_status write_cluster(const void *object, const char *path, ty_error *error)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);

    ty_cluster_to_json(object, &writer, NULL);
    return write_text(&text, path, error);
}

static void survive_writing(const written *w)
{
    char folder[] = "/tmp/trainyard-test-XXXXXX", path[64];
    ty_status status = TY_ENOMEM;
    ty_error error = {0};
    size_t length;
    trial whole;

    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    cr_assert_eq(w->write(w->object, path, &error), TY_OK, "%s: %s", w->name, error.message);
    whole = trial_of_file(path);
    length = whole.length;
    ty_free((char *)whole.text);
    for (long n = 1; n < MOST_ALLOCATIONS; n++) {
        memory_use use;
        unlink(path);
        memory_watch();
        memory_fail(n, false);
        status = w->write(w->object, path, &error);
        memory_fail(0, false);
        use = memory_watched();
        cr_assert_eq(use.blocks, 0, "%s: allocation %ld: %ld leaked", w->name, n, use.blocks);
        check_folder(folder, path, length, status == TY_OK, w->name);
        if (!memory_has_failed() || (!memory_sees_all() && status == TY_OK))
            break;
        cr_assert(status == TY_ENOMEM || status == TY_OK, "%s: allocation %ld: %s", w->name, n,
                  error.message);
    }
    cr_assert_eq(status, TY_OK);
    unlink(path);
    rmdir(folder);
}

Test(allocation, written_files)
{
    ty_workload *workload = open_mlp();
    ty_cluster *cluster = describe("2x p100-server");
    const written rows[] = {{workload, write_chakra, "chakra"},
                            {workload, write_workload, "workload"},
                            {cluster, write_cluster, "cluster"}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        survive_writing(&rows[i]);
    ty_workload_free(workload);
    ty_cluster_free(cluster);
}
