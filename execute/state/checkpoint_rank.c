/* A rank's file of a checkpoint: how it is written and read. */
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

#define MAGIC "trainyard.rank/2"

typedef struct header {
    char magic[sizeof MAGIC];
    ty_digest plan;
    uint32_t rank, rank_count, step, section_count;
} header;

typedef struct section_header {
    uint64_t bytes;
    ty_digest digest;
} section_header;

/* A section's data in host memory; the caller frees `*owned`. */
static ty_status section_find(const checkpoint_sections *s, const checkpoint_section *from,
                              const void **out, void **owned, ty_error *error)
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

static ty_status weights_check(const checkpoint_sections *s, uint32_t step, ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < s->count && status == TY_OK; i++) {
        const checkpoint_section *from = &s->items[i];
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
static ty_status section_write(FILE *file, const checkpoint_sections *s,
                               const checkpoint_section *from, ty_text *heads, ty_error *error)
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

static ty_status rank_write(const char *path, const header *head, const checkpoint_sections *s,
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

static ty_status bytes_read(FILE *file, const char *path, uint32_t index,
                            const checkpoint_section *to, ty_text *heads, ty_error *error)
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
static ty_status section_read(FILE *file, const char *path, uint32_t index,
                              const checkpoint_sections *s, ty_text *heads, ty_error *error)
{
    const checkpoint_section *to = &s->items[index];
    checkpoint_section staged = *to;
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
                           const checkpoint_sections *s, ty_error *error)
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

ty_status checkpoint_file_open(const char *directory, uint32_t step, uint32_t rank,
                               const ty_digest *digest, checkpoint_file *out, ty_error *error)
{
    char path[CHECKPOINT_PATH_SIZE];
    struct stat found;
    void *bytes = MAP_FAILED;
    int file;
    ty_status status;

    rank_path(directory, step, rank, path);
    TY_TRY(ty_file_check_plain(path, error));
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && fstat(file, &found) == 0 && found.st_size > 0)
        bytes = mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (bytes != MAP_FAILED) {
        *out = (checkpoint_file){bytes, (size_t)found.st_size};
        status = content_check(path, bytes, out->length, digest, error);
        if (status != TY_OK)
            checkpoint_file_close(out);
    } else if (file >= 0 && found.st_size == 0) {
        status = ty_fail(error, TY_EPARSE, "%s: truncated before section 0", path);
    } else {
        status = ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    }
    if (file >= 0)
        close(file);
    return status;
}

void checkpoint_file_close(checkpoint_file *file)
{
    if (file->bytes != NULL)
        munmap((void *)file->bytes, file->length);
    *file = (checkpoint_file){0};
}

uint32_t checkpoint_file_sections(const checkpoint_file *file)
{
    header head;

    memcpy(&head, file->bytes, sizeof head);
    return head.section_count;
}

const char *checkpoint_file_section(const checkpoint_file *file, uint32_t index, uint64_t *bytes)
{
    size_t at = sizeof(header);
    section_header head;

    for (uint32_t i = 0; at < file->length; i++, at += head.bytes) {
        memcpy(&head, file->bytes + at, sizeof head);
        at += sizeof head;
        *bytes = head.bytes;
        if (i == index)
            return file->bytes + at;
    }
    return NULL;
}

ty_status checkpoint_rank_check(const char *directory, uint32_t step, uint32_t rank,
                                const ty_digest *digest, ty_error *error)
{
    checkpoint_file file = {0};
    const ty_status status = checkpoint_file_open(directory, step, rank, digest, &file, error);

    checkpoint_file_close(&file);
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
    checkpoint_sections s = {0};
    header head;
    ty_status status;

    folder_path(directory, place->step, folder);
    rank_path(directory, place->step, place->source, path);
    TY_CHECK(checkpoint_sections_find(in, &s, error), status, cleanup);
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
    checkpoint_sections_clear(&s);
    return status;
}

ty_status checkpoint_rank_load(ty_interpreter *in, const char *directory,
                               const ty_checkpoint_place *place, ty_error *error)
{
    checkpoint_sections s = {0};
    header head;
    char path[CHECKPOINT_PATH_SIZE];
    ty_status status;

    rank_path(directory, place->step, place->source, path);
    TY_CHECK(checkpoint_sections_find(in, &s, error), status, cleanup);
    head = header_of(place, s.count);
    status = rank_read(path, &head, &place->file, &s, error);
cleanup:
    checkpoint_sections_clear(&s);
    return status;
}
