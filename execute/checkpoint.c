/* Checkpoints: which memory makes up a rank's state, and how it gets to the disk and back. */
#include "checkpoint.h"

#include "interpreter_state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECKPOINT_SCHEMA "trainyard.checkpoint/1"
#define MAGIC "trainyard.rank/1"

enum { PATH_SIZE = 4096, MAX_STEPS = 1000000000 };
#define MAX_SAMPLES ((UINT64_C(1) << 53) - 1) /* what JSON holds exactly */

typedef struct header {
    char magic[sizeof MAGIC];
    ty_digest plan;
    uint32_t rank, rank_count, step, section_count;
} header;

typedef struct section_header {
    uint64_t bytes;
    ty_digest digest;
} section_header;

/* A piece of memory that is part of the state. */
typedef struct section {
    void *data;
    uint64_t bytes;
    bool is_weights;         /* floats that must be finite */
    ty_stage_device *device; /* whose memory it is; NULL: the host's */
} section;

typedef struct sections {
    const ty_device_memory *memory; /* of sections on a device */
    section *items;
    uint32_t count, capacity;
    bool has_failed;
} sections;

/* ---- What the state is ------------------------------------------------------------------- */

static void add_on(sections *s, ty_stage_device *device, void *data, uint64_t bytes,
                   bool is_weights)
{
    if (s->count == s->capacity) {
        uint32_t capacity = s->capacity == 0 ? 64 : 2 * s->capacity;
        section *grown = ty_resize(s->items, capacity, sizeof *grown);
        if (grown == NULL) {
            s->has_failed = true;
            return;
        }
        s->items = grown;
        s->capacity = capacity;
    }
    if (bytes > 0)
        s->items[s->count++] =
            (section){data, bytes, is_weights, s->memory != NULL ? device : NULL};
}

/* Of the host. */
static void add(sections *s, void *data, uint64_t bytes)
{
    add_on(s, NULL, data, bytes, false);
}

/* Parameters [start, end) of one stage: all sets of weights, and optimizer state. */
static void add_range(sections *s, ty_interpreter *in, const held_stage *held, uint64_t start,
                      uint64_t end)
{
    const ty_device_backend *backend = in->options.backend;
    const uint64_t state_bytes = (end - start) * in->state_count * sizeof(float);
    uint32_t v;

    for (v = 0; v < held->version_count; v++) {
        if (held->version_count > 1)
            backend->select(held->device, v);
        add_on(s, held->device, backend->parameters(held->device) + start,
               (end - start) * sizeof(float), true);
    }
    if (held->version_count > 1)
        backend->select(held->device, in->controls_done % held->version_count);
    if (in->memory == NULL)
        add(s, held->optimizer_state + start * in->state_count, state_bytes);
    else if (state_bytes > 0)
        add_on(s, held->device, in->memory->state(held->device, start), state_bytes, false);
}

/* All of a stage but the others' shares of its sharded buckets. */
static void add_held(sections *s, ty_interpreter *in, const held_stage *held)
{
    ty_parameter_range *ranges = interpreter_kept_room(in);
    uint64_t count = 0;
    uint32_t r, range_count;

    if (ranges == NULL) {
        s->has_failed = true;
        return;
    }
    range_count = interpreter_kept_ranges(in, held, ranges);
    for (r = 0; r < range_count; r++)
        add_range(s, in, held, ranges[r].offset, ranges[r].offset + ranges[r].count);
    ty_free(ranges);
    if (in->options.backend->statistics != NULL) {
        float *statistics = in->options.backend->statistics(held->device, &count);
        add_on(s, held->device, statistics, count * sizeof *statistics, false);
    }
}

/* Whether a compressor keeps anything from step to step. */
static bool has_state(const ty_bucket *bucket)
{
    return bucket->compression.kind != TY_COMPRESSION_NONE &&
           bucket->compression.kind != TY_COMPRESSION_ROWS;
}

static void add_codec(sections *s, const ty_interpreter *in, const bucket_state *bucket)
{
    void *data = NULL;
    uint64_t bytes = 0;
    uint32_t i;

    for (i = 0; bucket->codec != NULL && ty_codec_state(bucket->codec, i, &data, &bytes); i++)
        add(s, data, bytes);
    for (i = 0; bucket->device_codec != NULL &&
                in->memory->codec_state(bucket->device_codec, i, &data, &bytes);
         i++)
        add_on(s, bucket->held->device, data, bytes, false);
}

static ty_status sections_find(ty_interpreter *in, sections *s, ty_error *error)
{
    uint32_t i;

    s->memory = in->memory;
    add(s, in->losses, in->controls_done * sizeof *in->losses);
    for (i = 0; i < in->held_count; i++)
        add_held(s, in, &in->held[i]);
    add(s, &in->noise, sizeof in->noise);
    add(s, in->noise_samples,
        interpreter_noise_most(in->controls_done) * sizeof *in->noise_samples);
    for (i = 0; i < in->options.plan->bucket_count; i++)
        if (has_state(&in->options.plan->buckets[i]))
            add_codec(s, in, &in->buckets[i]);
    if (in->options.precision == TY_PRECISION_FP16) {
        add(s, &in->loss_scale, sizeof in->loss_scale);
        add(s, &in->clean_steps, sizeof in->clean_steps);
    }
    return s->has_failed ? ty_fail(error, TY_ENOMEM, "out of memory for a checkpoint") : TY_OK;
}

/* What a section holds, in the host's memory; `*owned` is to be freed. */
static ty_status section_look(const sections *s, const section *from, const void **out,
                              void **owned, ty_error *error)
{
    *out = from->data;
    *owned = NULL;
    if (from->device == NULL)
        return TY_OK;
    *owned = ty_alloc(1, from->bytes);
    if (*owned == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for a checkpoint");
    *out = *owned;
    return s->memory->read(from->device, *owned, from->data, from->bytes, error);
}

static bool are_finite(const float *numbers, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite(numbers[i]))
            return false;
    return true;
}

static ty_status weights_check(const sections *s, uint32_t step, ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < s->count && status == TY_OK; i++) {
        const section *from = &s->items[i];
        const void *weights;
        void *owned;

        if (!from->is_weights)
            continue;
        status = section_look(s, from, &weights, &owned, error);
        if (status == TY_OK && !are_finite(weights, from->bytes / sizeof(float)))
            status = ty_fail(error, TY_EBACKEND,
                             "after step %u weights are no longer finite numbers; no checkpoint "
                             "is made of them",
                             step);
        ty_free(owned);
    }
    return status;
}

/* ---- A rank's file ----------------------------------------------------------------------- */

static void folder_path(const char *directory, uint32_t step, char *out)
{
    snprintf(out, PATH_SIZE, "%s/step-%u", directory, step);
}

static void rank_path(const char *directory, uint32_t step, uint32_t rank, char *out)
{
    snprintf(out, PATH_SIZE, "%s/step-%u/rank-%u", directory, step, rank);
}

enum { TEMPORARY_SIZE = sizeof ".tmp" };
static void temporary_path(const char *path, char *out)
{
    snprintf(out, PATH_SIZE + TEMPORARY_SIZE, "%s.tmp", path);
}

static header header_of(const ty_checkpoint_place *place, uint32_t section_count)
{
    header made;

    memset(&made, 0, sizeof made); /* padding is compared too */
    memcpy(made.magic, MAGIC, sizeof MAGIC);
    made.plan = place->plan;
    made.rank = place->source;
    made.rank_count = place->rank_count;
    made.step = place->step;
    made.section_count = section_count;
    return made;
}

/* Where a checkpoint of now goes. */
static ty_status place_make(const ty_interpreter *in, ty_checkpoint_place *out, ty_error *error)
{
    const uint64_t steps = in->controls_done - in->origin_step;

    *out = (ty_checkpoint_place){.step = in->controls_done,
                                 .samples =
                                     in->origin_samples + steps * in->options.plan->global_batch,
                                 .rank_count = in->options.transport->size,
                                 .source = in->options.transport->rank};
    return ty_plan_digest(in->options.plan, &out->plan, error);
}

/* TY_EIO leaves its reason in errno, anything else in `error`. */
static ty_status section_write(FILE *file, const sections *s, const section *from, ty_error *error)
{
    section_header head = {.bytes = from->bytes};
    const void *data;
    void *owned;
    ty_status status = section_look(s, from, &data, &owned, error);

    if (status == TY_OK) {
        head.digest = ty_digest_of(data, from->bytes);
        if (fwrite(&head, sizeof head, 1, file) != 1 ||
            fwrite(data, 1, from->bytes, file) != from->bytes)
            status = TY_EIO;
    }
    ty_free(owned);
    return status;
}

/* To the disk, not only to the system: only then is a rename worth anything. */
static bool file_finish(FILE *file)
{
    const bool is_flushed = fflush(file) == 0 && fsync(fileno(file)) == 0;
    return fclose(file) == 0 && is_flushed;
}

static bool folder_flush(const char *path)
{
    const int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool is_flushed = folder >= 0 && fsync(folder) == 0;

    if (folder >= 0)
        close(folder);
    return is_flushed;
}

static ty_status rank_write(const char *path, const header *head, const sections *s,
                            ty_error *error)
{
    char temporary[PATH_SIZE + TEMPORARY_SIZE];
    FILE *file;
    uint32_t i;
    ty_status status;

    temporary_path(path, temporary);
    file = fopen(temporary, "wb");
    if (file == NULL)
        return ty_fail(error, TY_EIO, "%s: %s", temporary, strerror(errno));
    status = fwrite(head, sizeof *head, 1, file) == 1 ? TY_OK : TY_EIO;
    for (i = 0; i < s->count && status == TY_OK; i++)
        status = section_write(file, s, &s->items[i], error);
    if (status != TY_OK) { /* the first reason, not what closing makes of it */
        if (status == TY_EIO)
            ty_fail(error, TY_EIO, "%s: %s", temporary, strerror(errno));
        fclose(file);
    } else if (!file_finish(file) || rename(temporary, path) != 0) {
        status = ty_fail(error, TY_EIO, "%s: %s", temporary, strerror(errno));
    }
    if (status != TY_OK)
        unlink(temporary);
    return status;
}

static ty_status bytes_read(FILE *file, const char *path, uint32_t index, const section *to,
                            ty_error *error)
{
    section_header head;

    if (fread(&head, sizeof head, 1, file) != 1)
        return ty_fail(error, TY_EPARSE, "%s: truncated before section %u", path, index);
    if (head.bytes != to->bytes)
        return ty_fail(error, TY_EPARSE, "%s: section %u: found %llu bytes, expected %llu", path,
                       index, (unsigned long long)head.bytes, (unsigned long long)to->bytes);
    if (fread(to->data, 1, to->bytes, file) != to->bytes)
        return ty_fail(error, TY_EPARSE, "%s: truncated in section %u", path, index);
    head.digest.hex[sizeof head.digest.hex - 1] = '\0';
    if (strcmp(ty_digest_of(to->data, to->bytes).hex, head.digest.hex) != 0)
        return ty_fail(error, TY_EPARSE,
                       "%s: section %u: its SHA-256 is not that of what was written", path, index);
    return TY_OK;
}

/* By way of the host's memory where it is a device's. */
static ty_status section_read(FILE *file, const char *path, uint32_t index, const sections *s,
                              ty_error *error)
{
    const section *to = &s->items[index];
    section staged = *to;
    ty_status status;

    if (to->device == NULL)
        return bytes_read(file, path, index, to, error);
    staged.data = ty_alloc(1, to->bytes);
    if (staged.data == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for a checkpoint");
    status = bytes_read(file, path, index, &staged, error);
    if (status == TY_OK)
        status = s->memory->write(to->device, to->data, staged.data, to->bytes, error);
    ty_free(staged.data);
    return status;
}

static ty_status rank_read(const char *path, const header *expected, const sections *s,
                           ty_error *error)
{
    FILE *file = fopen(path, "rb");
    header found;
    uint32_t i;
    ty_status status = TY_OK;

    if (file == NULL)
        return ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    if (fread(&found, sizeof found, 1, file) != 1 || memcmp(&found, expected, sizeof found) != 0)
        status = ty_fail(error, TY_EPARSE,
                         "%s: found no header of rank %u of %u after %u steps of this plan", path,
                         expected->rank, expected->rank_count, expected->step);
    for (i = 0; i < s->count && status == TY_OK; i++)
        status = section_read(file, path, i, s, error);
    if (status == TY_OK && fgetc(file) != EOF)
        status = ty_fail(error, TY_EPARSE, "%s: found more than %u sections", path, s->count);
    fclose(file);
    return status;
}

/* ---- latest.json ------------------------------------------------------------------------- */

static void latest_path(const char *directory, char *out)
{
    snprintf(out, PATH_SIZE, "%s/latest.json", directory);
}

/* Whether more of the state than weights depends on who has which gradients. */
static bool is_bound(const ty_plan *plan)
{
    bool is_compressed = false;

    for (uint32_t b = 0; b < plan->bucket_count; b++)
        is_compressed = is_compressed || has_state(&plan->buckets[b]);
    return is_compressed || plan->zero > 0 || ty_schedule_is_asynchronous(plan->schedule);
}

static void add_bound(const ty_plan *plan, ty_text *text)
{
    ty_text_addf(text, "%s zero %u, %u micro-batches\n", ty_schedule_name(plan->schedule),
                 plan->zero, plan->micro_batches);
    for (uint32_t s = 0; s < plan->stage_count; s++)
        ty_text_addf(text, "%u replicas\n", plan->stages[s].replicas);
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *bucket = &plan->buckets[b];

        ty_text_addf(text, "bucket %u %u %u %u ", bucket->stage, bucket->first_layer,
                     bucket->layer_count, bucket->tied_stage);
        ty_compression_text(&bucket->compression, text);
        ty_text_add(text, "\n");
    }
}

/* Lanes that a plan does not mention are one. */
static uint32_t one_at_least(uint32_t lanes)
{
    return lanes > 1 ? lanes : 1;
}

/* Equal of plans that can go on from each other's checkpoints. */
static ty_status state_digest(const ty_plan *plan, ty_digest *out, ty_error *error)
{
    const ty_optimizer *o = &plan->optimizer;
    ty_text text = {0};
    ty_status status;

    ty_text_addf(&text, "%s seed %llu\n%s %.17g %.17g %.17g %.17g %.17g\n",
                 plan->workload_digest.hex, (unsigned long long)plan->seed,
                 ty_optimizer_name(o->kind), o->momentum, o->beta1, o->beta2, o->epsilon,
                 o->weight_decay);
    ty_text_addf(&text, "interleave %u, lanes %u %u %u%s\n", ty_plan_interleave(plan),
                 one_at_least(plan->tensor_parallel), one_at_least(plan->context_parallel),
                 one_at_least(plan->expert_parallel),
                 plan->sequence_parallel ? " along the sequence" : "");
    for (uint32_t s = 0; s < plan->stage_count; s++)
        ty_text_addf(&text, "stage %u %u\n", plan->stages[s].first_layer,
                     plan->stages[s].layer_count);
    if (is_bound(plan))
        add_bound(plan, &text);
    status = ty_text_check(&text, error);
    if (status == TY_OK)
        *out = ty_digest_of(text.data, text.length);
    ty_text_clear(&text);
    return status;
}

static ty_status latest_write(const ty_interpreter *in, const char *directory,
                              const ty_checkpoint_place *place, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_digest state;
    char path[PATH_SIZE];
    ty_status status = state_digest(plan, &state, error);

    if (status != TY_OK)
        return status;
    latest_path(directory, path);
    ty_json_open(&writer, NULL, '{');
    ty_json_put_string(&writer, "schema", CHECKPOINT_SCHEMA);
    ty_json_put_string(&writer, "plan_digest", place->plan.hex);
    ty_json_put_string(&writer, "state_digest", state.hex);
    ty_json_put_string(&writer, "strategy", plan->strategy);
    ty_json_put_uint(&writer, "rank_count", place->rank_count);
    ty_json_open_flat(&writer, "replicas", '[');
    for (uint32_t s = 0; s < ty_plan_position_count(plan); s++)
        ty_json_put_uint(&writer, NULL, plan->stages[s].replicas);
    ty_json_close(&writer, ']');
    ty_json_put_uint(&writer, "step", place->step);
    ty_json_put_uint(&writer, "samples", place->samples);
    ty_json_close(&writer, '}');
    status = text.failed != TY_OK ? ty_fail(error, TY_ENOMEM, "out of memory for a checkpoint")
                                  : ty_file_write(path, text.data, text.length, error);
    ty_text_clear(&text);
    return status;
}

ty_status ty_checkpoint_refuse(const char *directory, ty_error *error)
{
    char path[PATH_SIZE];

    latest_path(directory, path);
    if (ty_file_exists(path))
        return ty_fail(error, TY_EINVAL,
                       "%s: found a checkpoint of an earlier run, expected none: resume from it, "
                       "or choose another folder",
                       path);
    return TY_OK;
}

/* What latest.json says. */
typedef struct latest {
    const char *strategy, *state; /* the document's */
    const ty_json *replicas;      /* [position] */
    ty_checkpoint_place place;
} latest;

/* A digest in a file: its text, whatever it is. */
static ty_status digest_read(const ty_json *root, const char *key, ty_digest *out, ty_error *error)
{
    const char *text;
    ty_status status = ty_json_string(root, key, &text, error);

    if (status == TY_OK)
        snprintf(out->hex, sizeof out->hex, "%s", text);
    return status;
}

static ty_status latest_read(const ty_json *root, latest *out, ty_error *error)
{
    ty_status status;

    TY_CHECK(ty_json_schema(root, CHECKPOINT_SCHEMA, error), status, done);
    TY_CHECK(digest_read(root, "plan_digest", &out->place.plan, error), status, done);
    TY_CHECK(ty_json_string(root, "state_digest", &out->state, error), status, done);
    TY_CHECK(ty_json_string(root, "strategy", &out->strategy, error), status, done);
    TY_CHECK(ty_json_uint32(root, "rank_count", 1, TY_MAX_RANKS, &out->place.rank_count, error),
             status, done);
    TY_CHECK(ty_json_array(root, "replicas", 1, TY_MAX_RANKS, &out->replicas, error), status, done);
    TY_CHECK(ty_json_uint32(root, "step", 1, MAX_STEPS, &out->place.step, error), status, done);
    TY_CHECK(ty_json_uint64(root, "samples", 1, MAX_SAMPLES, &out->place.samples, error), status,
             done);
    status = ty_json_end(root, error);
done:
    return status;
}

/* The process whose state is that of `process`: of a replica of the same position the same lane. */
static ty_status source_find(const latest *found, const ty_plan *plan, uint32_t process,
                             uint32_t *out, ty_error *error)
{
    const uint32_t width = ty_plan_width(plan), rank = process / width;
    const uint32_t position = ty_plan_stage_of_rank(plan, rank);
    const uint32_t replica = rank - ty_plan_first_rank(plan, position);
    uint32_t first = 0, replicas = 0;
    ty_status status = TY_OK;

    if (ty_json_size(found->replicas) != ty_plan_position_count(plan))
        return ty_json_fail(found->replicas, error, "as many as the plan has positions, %u",
                            ty_plan_position_count(plan));
    for (uint32_t p = 0; p <= position && status == TY_OK; p++) {
        first += replicas;
        status =
            ty_json_as_uint32(ty_json_at(found->replicas, p), 1, TY_MAX_RANKS, &replicas, error);
    }
    if (status == TY_OK)
        *out = (first + replica % replicas) * width + process % width;
    return status;
}

static ty_status latest_check(const ty_json *root, const ty_plan *plan, uint32_t process,
                              uint32_t steps, ty_checkpoint_place *out, ty_error *error)
{
    latest found = {0};
    ty_digest own, state;
    bool is_own;
    ty_status status;

    TY_CHECK(latest_read(root, &found, error), status, done);
    TY_CHECK(ty_plan_digest(plan, &own, error), status, done);
    TY_CHECK(state_digest(plan, &state, error), status, done);
    is_own = strcmp(own.hex, found.place.plan.hex) == 0;
    if (!is_own && strcmp(state.hex, found.state) != 0)
        return ty_json_fail(root, error,
                            "a checkpoint of this very plan (\"%s\", %u ranks), or of one that "
                            "differs in its batch alone, not one of another (\"%s\", %u)",
                            plan->strategy, ty_plan_rank_count(plan), found.strategy,
                            found.place.rank_count);
    if (found.place.step >= steps)
        return ty_json_fail(root, error, "a checkpoint of fewer than %u steps, not one of %u",
                            steps, found.place.step);
    found.place.source = process;
    if (!is_own)
        TY_CHECK(source_find(&found, plan, process, &found.place.source, error), status, done);
    *out = found.place;
done:
    return status;
}

ty_status ty_checkpoint_find(const char *directory, const ty_plan *plan, uint32_t process,
                             uint32_t steps, ty_checkpoint_place *out, ty_error *error)
{
    ty_json_document *document = NULL;
    char path[PATH_SIZE];
    ty_status status;

    latest_path(directory, path);
    if (!ty_file_exists(path))
        return ty_fail(error, TY_EIO, "%s: there is no checkpoint to go on from", path);
    TY_CHECK(ty_json_load(path, &document, error), status, done);
    status = latest_check(ty_json_root(document), plan, process, steps, out, error);
done:
    ty_json_free(document);
    return status;
}

/* ---- Saving and loading ------------------------------------------------------------------ */

/* Files of this rank, and of those that a plan with more ranks left. */
static void own_remove(const ty_interpreter *in, const char *directory, uint32_t step)
{
    const uint32_t size = in->options.transport->size;
    char path[PATH_SIZE], temporary[PATH_SIZE + TEMPORARY_SIZE];

    for (uint32_t rank = in->options.transport->rank; rank < size || rank < in->origin_ranks;
         rank += size) {
        rank_path(directory, step, rank, path);
        unlink(path);
        temporary_path(path, temporary);
        unlink(temporary);
    }
    folder_path(directory, step, path);
    rmdir(path); /* by the last rank to come here; the others find it not empty */
}

/* What was left by a run that ended while it wrote or removed one: all but the newest. */
static void others_remove(const ty_interpreter *in, const char *directory, uint32_t newest)
{
    DIR *folder = opendir(directory);
    const struct dirent *entry;
    uint32_t step;
    char after;

    while (folder != NULL && (entry = readdir(folder)) != NULL)
        if (sscanf(entry->d_name, "step-%" SCNu32 "%c", &step, &after) == 1 && step != newest)
            own_remove(in, directory, step);
    if (folder != NULL)
        closedir(folder);
}

static ty_status own_save(ty_interpreter *in, const char *directory, ty_checkpoint_place *place,
                          ty_error *error)
{
    char path[PATH_SIZE], folder[PATH_SIZE];
    sections s = {0};
    header head;
    ty_status status;

    folder_path(directory, in->controls_done, folder);
    rank_path(directory, in->controls_done, in->options.transport->rank, path);
    TY_CHECK(sections_find(in, &s, error), status, cleanup);
    TY_CHECK(weights_check(&s, in->controls_done, error), status, cleanup);
    TY_CHECK(place_make(in, place, error), status, cleanup);
    TY_CHECK(ty_directory_make(folder, error), status, cleanup);
    head = header_of(place, s.count);
    TY_CHECK(rank_write(path, &head, &s, error), status, cleanup);
    if (!folder_flush(folder) || !folder_flush(directory))
        status = ty_fail(error, TY_EIO, "%s: %s", folder, strerror(errno));
cleanup:
    ty_free(s.items);
    return status;
}

ty_status ty_checkpoint_save(ty_interpreter *in, const char *directory, uint32_t replaced,
                             ty_error *error)
{
    ty_transport *transport = in->options.transport;
    ty_checkpoint_place place;
    ty_status status = strlen(directory) > PATH_SIZE - 64
                           ? ty_fail(error, TY_EINVAL, "%.64s...: too long a path", directory)
                           : own_save(in, directory, &place, error);

    status = ty_transport_agree(transport, status, error);
    if (status == TY_OK) {
        if (transport->rank == 0)
            status = latest_write(in, directory, &place, error);
        status = ty_transport_agree(transport, status, error);
    }
    if (status != TY_OK)
        own_remove(in, directory, in->controls_done);
    else if (replaced != in->controls_done)
        own_remove(in, directory, replaced);
    return status;
}

/* Where the interpreter would be after as many steps. */
static void step_set(ty_interpreter *in, uint32_t step)
{
    uint32_t i;

    in->controls_done = in->steps_done = in->target = step;
    for (i = 0; i < in->program->instruction_count; i++)
        in->done[i] = step;
    for (i = 0; i < in->held_count; i++) {
        in->held[i].bound_count = (uint64_t)step * in->local_micro_batches;
        if (in->held[i].version_count > 1)
            in->options.backend->select(in->held[i].device, step % in->held[i].version_count);
    }
}

ty_status ty_checkpoint_load(ty_interpreter *in, const char *directory,
                             const ty_checkpoint_place *place, ty_error *error)
{
    sections s = {0};
    header head;
    char path[PATH_SIZE];
    ty_status status;

    if (strlen(directory) > PATH_SIZE - 64)
        return ty_fail(error, TY_EINVAL, "%.64s...: too long a path", directory);
    rank_path(directory, place->step, place->source, path);
    step_set(in, place->step);
    in->origin_step = place->step;
    in->origin_samples = place->samples;
    in->origin_ranks = place->rank_count;
    TY_CHECK(sections_find(in, &s, error), status, cleanup);
    head = header_of(place, s.count);
    TY_CHECK(rank_read(path, &head, &s, error), status, cleanup);
    others_remove(in, directory, place->step);
cleanup:
    ty_free(s.items);
    return status;
}
