/* A rank's file of a checkpoint: the memory that makes up its state, and how it is written and
 * read.
 */
#include "checkpoint_parts.h"
#include "interpreter_buckets.h"
#include "interpreter_watches.h"
#include "sharding.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "trainyard.rank/1"

typedef struct header {
    char magic[sizeof MAGIC];
    ty_digest plan;
    uint32_t rank, rank_count, step, section_count;
} header;

typedef struct section_header {
    uint64_t bytes;
    ty_digest digest;
} section_header;

/* A block of memory that is part of the state. */
typedef struct section {
    void *data;
    uint64_t bytes;
    bool is_weights;         /* floats that must be finite */
    ty_stage_device *device; /* that owns the memory; NULL: host memory */
} section;

typedef struct sections {
    const ty_device_memory *memory; /* of sections on a device */
    section *items;
    uint32_t count, capacity;
    bool has_failed;
} sections;

/* ---- The state --------------------------------------------------------------------------- */

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

/* Host memory. */
static void add(sections *s, void *data, uint64_t bytes)
{
    add_on(s, NULL, data, bytes, false);
}

/* Parameters [start, end) of one stage: all weight versions, and optimizer states. */
static void add_range(sections *s, ty_interpreter *in, const virtual_stage_state *virtual_stage,
                      uint64_t start, uint64_t end)
{
    const ty_device_backend *backend = in->options.backend;
    const uint64_t state_bytes = (end - start) * in->state_count * sizeof(float);

    for (uint32_t v = 0; v < virtual_stage->version_count; v++) {
        if (virtual_stage->version_count > 1)
            backend->select(virtual_stage->device, v);
        add_on(s, virtual_stage->device, interpreter_weights_at(in, virtual_stage, start),
               (end - start) * sizeof(float), true);
    }
    if (virtual_stage->version_count > 1)
        backend->select(virtual_stage->device, in->controls_done % virtual_stage->version_count);
    if (in->memory == NULL)
        add(s, virtual_stage->optimizer_state + start * in->state_count, state_bytes);
    else if (state_bytes > 0)
        add_on(s, virtual_stage->device, in->memory->state(virtual_stage->device, start),
               state_bytes, false);
}

/* All parameters of a stage except other ranks' shards of its sharded buckets. */
static void add_virtual_stage(sections *s, ty_interpreter *in,
                              const virtual_stage_state *virtual_stage)
{
    ty_parameter_range *ranges = interpreter_kept_room(in);
    uint64_t count = 0;
    uint32_t r, range_count;

    if (ranges == NULL) {
        s->has_failed = true;
        return;
    }
    range_count = interpreter_kept_ranges(in, virtual_stage, ranges);
    for (r = 0; r < range_count; r++)
        add_range(s, in, virtual_stage, ranges[r].offset, ranges[r].offset + ranges[r].count);
    ty_free(ranges);
    if (in->options.backend->statistics != NULL) {
        float *statistics = in->options.backend->statistics(virtual_stage->device, &count);
        add_on(s, virtual_stage->device, statistics, count * sizeof *statistics, false);
    }
}

static void add_codec(sections *s, const bucket_state *bucket)
{
    void *data = NULL;
    uint64_t bytes = 0;

    for (uint32_t i = 0; bucket->codec != NULL && ty_codec_state(bucket->codec, i, &data, &bytes);
         i++)
        add_on(s, i > 0 ? bucket->virtual_stage->device : NULL, data, bytes, false);
}

static ty_status sections_find(ty_interpreter *in, sections *s, ty_error *error)
{
    ty_noise_sample *samples;
    ty_gradient_noise *noise = interpreter_noise_sums(in, &samples);

    s->memory = in->memory;
    add(s, in->losses, in->controls_done * sizeof *in->losses);
    for (uint32_t i = 0; i < in->virtual_stage_count; i++)
        add_virtual_stage(s, in, &in->virtual_stages[i]);
    add(s, noise, sizeof *noise);
    add(s, samples, interpreter_noise_most(in->controls_done) * sizeof *samples);
    for (uint32_t i = 0; i < in->options.plan->bucket_count; i++)
        if (ty_bucket_keeps_state(&in->options.plan->buckets[i]))
            add_codec(s, &in->buckets[i]);
    if (in->options.precision == TY_PRECISION_FP16) {
        add(s, &in->loss_scale, sizeof in->loss_scale);
        add(s, &in->clean_steps, sizeof in->clean_steps);
    }
    return s->has_failed ? ty_fail(error, TY_ENOMEM, "out of memory for a checkpoint") : TY_OK;
}

/* A section's data in host memory; the caller frees `*owned`. */
static ty_status section_find(const sections *s, const section *from, const void **out,
                              void **owned, ty_error *error)
{
    *out = from->data;
    *owned = NULL;
    if (from->device == NULL)
        return TY_OK;
    *owned = ty_alloc(1, from->bytes);
    TY_TRY(ty_check_memory(*owned != NULL, error));
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
        status = section_find(s, from, &weights, &owned, error);
        if (status == TY_OK && !are_finite(weights, from->bytes / sizeof(float)))
            status = ty_fail(error, TY_EBACKEND,
                             "after step %u weights are no longer finite numbers; no checkpoint "
                             "is made of them",
                             step);
        ty_free(owned);
    }
    return status;
}

/* ---- The file ----------------------------------------------------------------------- */

static void folder_path(const char *directory, uint32_t step, char *out)
{
    snprintf(out, CHECKPOINT_PATH_SIZE, "%s/step-%u", directory, step);
}

static void rank_path(const char *directory, uint32_t step, uint32_t rank, char *out)
{
    snprintf(out, CHECKPOINT_PATH_SIZE, "%s/step-%u/rank-%u", directory, step, rank);
}

enum { TEMPORARY_SIZE = sizeof ".tmp" };
static void temporary_path(const char *path, char *out)
{
    snprintf(out, CHECKPOINT_PATH_SIZE + TEMPORARY_SIZE, "%s.tmp", path);
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

/* TY_EIO leaves its reason in errno, anything else in `error`. Adds the header to `heads`. */
static ty_status section_write(FILE *file, const sections *s, const section *from, ty_text *heads,
                               ty_error *error)
{
    section_header head;
    const void *data;
    void *owned;
    ty_status status;

    memset(&head, 0, sizeof head); /* padding is written to the file, too */
    head.bytes = from->bytes;
    status = section_find(s, from, &data, &owned, error);

    if (status == TY_OK) {
        head.digest = ty_digest_of(data, from->bytes);
        ty_text_append(heads, (const char *)&head, sizeof head);
        if (fwrite(&head, sizeof head, 1, file) != 1 ||
            fwrite(data, 1, from->bytes, file) != from->bytes)
            status = TY_EIO;
    }
    ty_free(owned);
    return status;
}

/* Flushes the file to the disk, not only to the system, so that a rename is safe. */
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

/* The digest of the entire file. */
static ty_status heads_digest(const ty_text *heads, ty_digest *out, ty_error *error)
{
    const ty_status status = ty_text_check(heads, error);

    if (status == TY_OK)
        *out = ty_digest_of(heads->data, heads->length);
    return status;
}

static ty_status rank_write(const char *path, const header *head, const sections *s,
                            ty_digest *digest, ty_error *error)
{
    ty_text heads = {0};
    char temporary[CHECKPOINT_PATH_SIZE + TEMPORARY_SIZE];
    FILE *file;
    int descriptor;
    ty_status status;

    temporary_path(path, temporary);
    unlink(temporary); /* of a killed run, perhaps with another mode */
    descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    file = descriptor >= 0 ? fdopen(descriptor, "wb") : NULL;
    if (file == NULL) {
        status = ty_fail(error, TY_EIO, "%s: %s", temporary, strerror(errno));
        if (descriptor >= 0)
            close(descriptor);
        return status;
    }
    ty_text_append(&heads, (const char *)head, sizeof *head);
    status = fwrite(head, sizeof *head, 1, file) == 1 ? TY_OK : TY_EIO;
    for (uint32_t i = 0; i < s->count && status == TY_OK; i++)
        status = section_write(file, s, &s->items[i], &heads, error);
    if (status != TY_OK) { /* keep the first reason, not an error of closing */
        if (status == TY_EIO)
            ty_fail(error, TY_EIO, "%s: %s", temporary, strerror(errno));
        fclose(file);
    } else if (!file_finish(file) || rename(temporary, path) != 0) {
        status = ty_fail(error, TY_EIO, "%s: %s", temporary, strerror(errno));
    }
    if (status == TY_OK)
        status = heads_digest(&heads, digest, error);
    else
        unlink(temporary);
    ty_text_clear(&heads);
    return status;
}

static ty_status bytes_read(FILE *file, const char *path, uint32_t index, const section *to,
                            ty_text *heads, ty_error *error)
{
    section_header head;

    if (fread(&head, sizeof head, 1, file) != 1)
        return ty_fail(error, TY_EPARSE, "%s: truncated before section %u", path, index);
    ty_text_append(heads, (const char *)&head, sizeof head);
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

/* Through host memory if the section is on a device. */
static ty_status section_read(FILE *file, const char *path, uint32_t index, const sections *s,
                              ty_text *heads, ty_error *error)
{
    const section *to = &s->items[index];
    section staged = *to;
    ty_status status;

    if (to->device == NULL)
        return bytes_read(file, path, index, to, heads, error);
    staged.data = ty_alloc(1, to->bytes);
    TY_TRY(ty_check_memory(staged.data != NULL, error));
    status = bytes_read(file, path, index, &staged, heads, error);
    if (status == TY_OK)
        status = s->memory->write(to->device, to->data, staged.data, to->bytes, error);
    ty_free(staged.data);
    return status;
}

static ty_status rank_read(const char *path, const header *expected, const ty_digest *digest,
                           const sections *s, ty_error *error)
{
    FILE *file;
    ty_text heads = {0};
    ty_digest read;
    header found;
    ty_status status = ty_file_check_plain(path, error);

    if (status != TY_OK)
        return status;
    file = fopen(path, "rb");
    if (file == NULL)
        return ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    /* Padding is zero. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
    if (fread(&found, sizeof found, 1, file) != 1 || memcmp(&found, expected, sizeof found) != 0)
        status = ty_fail(error, TY_EPARSE,
                         "%s: found no header of rank %u of %u after %u steps of this plan", path,
                         expected->rank, expected->rank_count, expected->step);
    ty_text_append(&heads, (const char *)&found, sizeof found);
    for (uint32_t i = 0; i < s->count && status == TY_OK; i++)
        status = section_read(file, path, i, s, &heads, error);
    if (status == TY_OK && fgetc(file) != EOF)
        status = ty_fail(error, TY_EPARSE, "%s: found more than %u sections", path, s->count);
    if (status == TY_OK)
        status = heads_digest(&heads, &read, error);
    if (status == TY_OK && strcmp(read.hex, digest->hex) != 0)
        status =
            ty_fail(error, TY_EPARSE, "%s: found another file than checkpoint.json names", path);
    ty_text_clear(&heads);
    fclose(file);
    return status;
}

/* Walks a file in memory: its header, and sections with their digests. */
static ty_status content_check(const char *path, const char *bytes, size_t length,
                               const ty_digest *expected, ty_error *error)
{
    ty_text heads = {0};
    size_t at = sizeof(header);
    section_header head;
    ty_digest found;
    ty_status status = TY_OK;

    ty_text_append(&heads, bytes, length < at ? length : at);
    for (uint32_t i = 0; at < length && status == TY_OK; i++, at += head.bytes) {
        if (length - at < sizeof head) {
            status = ty_fail(error, TY_EPARSE, "%s: truncated before section %u", path, i);
            break;
        }
        memcpy(&head, bytes + at, sizeof head);
        ty_text_append(&heads, bytes + at, sizeof head);
        at += sizeof head;
        if (head.bytes > length - at) {
            status = ty_fail(error, TY_EPARSE, "%s: truncated in section %u", path, i);
            break;
        }
        found = ty_digest_of(bytes + at, head.bytes);
        if (memcmp(found.hex, head.digest.hex, sizeof found.hex) != 0)
            status = ty_fail(error, TY_EPARSE, "%s: section %u: its content has another SHA-256",
                             path, i);
    }
    if (status == TY_OK)
        status = heads_digest(&heads, &found, error);
    if (status == TY_OK && strcmp(found.hex, expected->hex) != 0)
        status =
            ty_fail(error, TY_EPARSE, "%s: found another file than checkpoint.json names", path);
    ty_text_clear(&heads);
    return status;
}

ty_status checkpoint_rank_check(const char *directory, const ty_checkpoint_place *place,
                                ty_error *error)
{
    char path[CHECKPOINT_PATH_SIZE];
    struct stat found;
    void *bytes = MAP_FAILED;
    int file;
    ty_status status;

    rank_path(directory, place->step, place->source, path);
    TY_TRY(ty_file_check_plain(path, error));
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && fstat(file, &found) == 0 && found.st_size > 0)
        bytes = mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (bytes != MAP_FAILED) {
        status = content_check(path, bytes, (size_t)found.st_size, &place->file, error);
        munmap(bytes, (size_t)found.st_size);
    } else if (file >= 0 && found.st_size == 0) {
        status = ty_fail(error, TY_EPARSE, "%s: truncated before section 0", path);
    } else {
        status = ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    }
    if (file >= 0)
        close(file);
    return status;
}

/* A step's folder that was replaced by a link leads to other files. */
static bool is_link(const char *path)
{
    struct stat found;

    return lstat(path, &found) == 0 && S_ISLNK(found.st_mode);
}

void checkpoint_rank_remove(const ty_interpreter *in, const char *directory, uint32_t step)
{
    const uint32_t size = in->options.transport->size;
    char path[CHECKPOINT_PATH_SIZE], temporary[CHECKPOINT_PATH_SIZE + TEMPORARY_SIZE];

    folder_path(directory, step, path);
    if (is_link(path)) {
        unlink(path);
        return;
    }
    if (in->options.transport->rank == 0) {
        snprintf(temporary, sizeof temporary, "%s/step-%u/checkpoint.json", directory, step);
        unlink(temporary);
    }
    for (uint32_t rank = in->options.transport->rank; rank < size || rank < in->origin_ranks;
         rank += size) {
        rank_path(directory, step, rank, path);
        unlink(path);
        temporary_path(path, temporary);
        unlink(temporary);
    }
    folder_path(directory, step, path);
    rmdir(path); /* succeeds on the last rank; the others find it not empty */
}

ty_status checkpoint_rank_save(ty_interpreter *in, const char *directory,
                               const ty_checkpoint_place *place, ty_digest *digest, ty_error *error)
{
    char path[CHECKPOINT_PATH_SIZE], folder[CHECKPOINT_PATH_SIZE];
    sections s = {0};
    header head;
    ty_status status;

    folder_path(directory, place->step, folder);
    rank_path(directory, place->step, place->source, path);
    TY_CHECK(sections_find(in, &s, error), status, cleanup);
    TY_CHECK(weights_check(&s, place->step, error), status, cleanup);
    TY_CHECK(ty_directory_make(directory, error), status, cleanup);
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) {
        status = ty_fail(error, TY_EIO, "%s: %s", folder, strerror(errno));
        goto cleanup;
    }
    if (is_link(folder)) {
        status = ty_fail(error, TY_EIO, "%s: found a symbolic link, expected a folder", folder);
        goto cleanup;
    }
    head = header_of(place, s.count);
    TY_CHECK(rank_write(path, &head, &s, digest, error), status, cleanup);
    if (!folder_flush(folder) || !folder_flush(directory))
        status = ty_fail(error, TY_EIO, "%s: %s", folder, strerror(errno));
cleanup:
    ty_free(s.items);
    return status;
}

ty_status checkpoint_rank_load(ty_interpreter *in, const char *directory,
                               const ty_checkpoint_place *place, ty_error *error)
{
    sections s = {0};
    header head;
    char path[CHECKPOINT_PATH_SIZE];
    ty_status status;

    rank_path(directory, place->step, place->source, path);
    TY_CHECK(sections_find(in, &s, error), status, cleanup);
    head = header_of(place, s.count);
    status = rank_read(path, &head, &place->file, &s, error);
cleanup:
    ty_free(s.items);
    return status;
}
