/* checkpoint.json: the files of a checkpoint, and the plans that can resume from it. latest.json is
 * a copy of the newest one. */
#include "checkpoint_parts.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CHECKPOINT_SCHEMA "trainyard.checkpoint/3"

enum { MAX_STEPS = 1000000000 };
#define MAX_SAMPLES ((UINT64_C(1) << 53) - 1) /* the largest integer that JSON stores exactly */

static void latest_path(const char *directory, char *out)
{
    snprintf(out, CHECKPOINT_PATH_SIZE, "%s/latest.json", directory);
}

static void step_path(const char *directory, uint32_t step, char *out)
{
    snprintf(out, CHECKPOINT_PATH_SIZE, "%s/step-%u/checkpoint.json", directory, step);
}

/* ---- A digest of the file within it: of the text with zeros in the digest's place --------------
 */

#define DIGEST_KEY "\"digest\": \""
static const char no_digest[] = "0000000000000000000000000000000000000000000000000000000000000000";

/* Start of the digest in the file's text, 64 characters before its end; NULL: not found. */
static char *digest_place(char *text, size_t length)
{
    char *found = NULL;

    for (char *at = strstr(text, DIGEST_KEY); at != NULL; at = strstr(at + 1, DIGEST_KEY))
        found = at + sizeof DIGEST_KEY - 1;
    if (found == NULL || length - (size_t)(found - text) < sizeof no_digest)
        return NULL;
    return found;
}

static void digest_put(char *text, size_t length)
{
    const ty_digest digest = ty_digest_of(text, length);

    memcpy(digest_place(text, length), digest.hex, sizeof no_digest - 1);
}

static ty_status digest_check(const char *path, char *text, size_t length, ty_error *error)
{
    char *place = digest_place(text, length);
    ty_digest found;

    if (place != NULL) {
        memcpy(found.hex, place, sizeof no_digest - 1);
        found.hex[sizeof no_digest - 1] = '\0';
        memcpy(place, no_digest, sizeof no_digest - 1);
        if (strcmp(ty_digest_of(text, length).hex, found.hex) == 0)
            return TY_OK;
    }
    return ty_fail(error, TY_EPARSE, "%s: its SHA-256 is not that of what was written", path);
}

/* ---- The file ---------------------------------------------------------------------------------
 */

/* The contents of both. */
typedef struct latest {
    ty_digest plan, state, tensors, own;
    const char *strategy;
    uint32_t rank_count, step, replica_count, file_count;
    uint32_t *replicas; /* [replica_count]: of each pipeline rank */
    uint64_t samples;
    ty_digest *files; /* [file_count]: of each rank */
} latest;

static const json_field fields[] = {
    {"plan_digest", JSON_DIGEST, JSON_AT(latest, plan)},
    {"state_digest", JSON_DIGEST, JSON_AT(latest, state)},
    {"tensors_digest", JSON_DIGEST, JSON_AT(latest, tensors)},
    {"strategy", JSON_WORD, JSON_AT(latest, strategy)},
    {"rank_count", JSON_UINT32, JSON_AT(latest, rank_count), 1, TY_MAX_RANKS},
    {"replicas", JSON_UINTS, JSON_AT(latest, replicas), 1, TY_MAX_RANKS,
     .count_at = offsetof(latest, replica_count), .least_count = 1, .most_count = TY_MAX_RANKS},
    {"step", JSON_UINT32, JSON_AT(latest, step), 1, MAX_STEPS},
    {"samples", JSON_UINT64, JSON_AT(latest, samples), 1, (double)MAX_SAMPLES},
    {"files", JSON_DIGESTS, JSON_AT(latest, files), .count_at = offsetof(latest, file_count),
     .least_count = 1, .most_count = TY_MAX_RANKS},
    {"digest", JSON_DIGEST, JSON_AT(latest, own)}, /* checked before it is read */
};
const json_record checkpoint_latest_record = JSON_RECORD(latest, fields);

ty_status checkpoint_latest_write(const ty_plan *plan, const char *directory,
                                  const ty_checkpoint_place *place, const ty_digest *files,
                                  ty_error *error)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    latest said = {.plan = place->plan,
                   .strategy = plan->strategy,
                   .rank_count = place->rank_count,
                   .replica_count = ty_plan_pipeline_size(plan),
                   .step = place->step,
                   .samples = place->samples,
                   .file_count = place->rank_count,
                   .files = (ty_digest *)files}; /* only read */
    char path[CHECKPOINT_PATH_SIZE];
    ty_status status = ty_plan_state_digest(plan, &said.state, error);

    if (status == TY_OK)
        status = ty_plan_tensors_digest(plan, &said.tensors, error);
    if (status != TY_OK)
        return status;
    said.replicas = ty_alloc(said.replica_count, sizeof *said.replicas);
    TY_TRY(ty_check_memory(said.replicas != NULL, error));
    for (uint32_t s = 0; s < said.replica_count; s++)
        said.replicas[s] = plan->stages[s].replicas;
    memcpy(said.own.hex, no_digest, sizeof no_digest);
    ty_json_open(&writer, NULL, '{');
    ty_json_put_string(&writer, "schema", CHECKPOINT_SCHEMA);
    ty_record_put(&checkpoint_latest_record, &said, NULL, &writer);
    ty_json_close(&writer, '}');
    status = ty_text_check(&text, error);
    if (status == TY_OK) {
        digest_put(text.data, text.length);
        step_path(directory, place->step, path);
        status = ty_file_write_text(path, &text, error);
    }
    latest_path(directory, path);
    if (status == TY_OK)
        status = ty_file_write_text(path, &text, error);
    ty_text_clear(&text);
    ty_free(said.replicas);
    return status;
}

static ty_status latest_read(const ty_json *root, latest *out, ty_error *error)
{
    const ty_json *files;

    TY_TRY(ty_json_schema(root, CHECKPOINT_SCHEMA, error));
    TY_TRY(ty_record_read_all(root, &checkpoint_latest_record, out, NULL, error));
    return ty_json_array(root, "files", out->rank_count, out->rank_count, &files, error);
}

/* The rank whose state is that of `rank`: the same one of a stage replica of the same pipeline
 * rank.
 */
static ty_status source_find(const ty_json *root, const latest *found, const ty_plan *plan,
                             uint32_t rank, uint32_t *out, ty_error *error)
{
    const uint32_t width = ty_plan_replica_ranks(plan), stage_replica = rank / width;
    const uint32_t pipeline_rank = ty_plan_stage_of_replica(plan, stage_replica);
    const uint32_t replica = stage_replica - ty_plan_first_replica(plan, pipeline_rank);
    const ty_json *replicas;
    uint32_t first = 0;
    ty_status status = ty_json_array(root, "replicas", ty_plan_pipeline_size(plan),
                                     ty_plan_pipeline_size(plan), &replicas, error);

    if (status != TY_OK)
        return status;
    for (uint32_t p = 0; p < pipeline_rank; p++)
        first += found->replicas[p];
    *out = (first + replica % found->replicas[pipeline_rank]) * width + rank % width;
    return TY_OK;
}

static ty_status latest_check(const ty_json *root, const ty_checkpoint_query *query,
                              ty_checkpoint_place *out, ty_error *error)
{
    const ty_plan *plan = query->plan;
    latest found = {0};
    ty_digest own, state, tensors;
    uint32_t source = query->rank, stride = 0;
    bool is_own;
    ty_status status;

    TY_CHECK(latest_read(root, &found, error), status, done);
    TY_CHECK(ty_plan_digest(plan, &own, error), status, done);
    TY_CHECK(ty_plan_state_digest(plan, &state, error), status, done);
    TY_CHECK(ty_plan_tensors_digest(plan, &tensors, error), status, done);
    is_own = strcmp(own.hex, found.plan.hex) == 0;
    if (!is_own && strcmp(state.hex, found.state.hex) != 0) {
        stride = ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL);
        source = query->rank % stride;
    }
    if (stride > 0 && strcmp(tensors.hex, found.tensors.hex) != 0) {
        status = ty_json_fail(root, error,
                              "a checkpoint of this plan (\"%s\", %u ranks), or of one with the "
                              "same tensors, not one of another (\"%s\", %u)",
                              plan->strategy, ty_plan_rank_count(plan), found.strategy,
                              found.rank_count);
        goto done;
    }
    if (found.step > query->steps) {
        status = ty_json_fail(root, error, "a checkpoint of at most %u steps, not one of %u",
                              query->steps, found.step);
        goto done;
    }
    if (!is_own && stride == 0)
        TY_CHECK(source_find(root, &found, plan, query->rank, &source, error), status, done);
    if (source >= found.rank_count) {
        status = ty_json_fail(root, error, "files of more than %u ranks, among them number %u",
                              found.rank_count, source);
        goto done;
    }
    *out = (ty_checkpoint_place){.plan = found.plan,
                                 .rank_count = found.rank_count,
                                 .step = found.step,
                                 .samples = found.samples,
                                 .source = source,
                                 .file = found.files[source],
                                 .stride = stride,
                                 .files = stride > 0 ? found.files : NULL};
    if (stride > 0)
        found.files = NULL; /* given away */
done:
    ty_free(found.replicas);
    ty_free(found.files);
    return status;
}

/* ---- The checkpoints of a folder ------------------------------------------------------------- */

/* Reads a file and checks its digest. */
static ty_status document_read(const char *path, ty_json_document **out, ty_error *error)
{
    ty_json_document *document = NULL;
    char *text = NULL;
    size_t length;
    ty_status status;

    TY_CHECK(ty_file_read(path, 0, &text, &length, error), status, done);
    TY_CHECK(ty_json_parse(text, length, path, &document, error), status, done);
    status = digest_check(path, text, length, error);
    if (status == TY_OK) {
        *out = document;
        document = NULL; /* given away */
    }
done:
    ty_json_free(document);
    ty_free(text);
    return status;
}

/* The document of one step, from either place; NULL: neither has it, so the checkpoint is
 * incomplete. */
static ty_status step_read(const char *directory, uint32_t step, ty_json_document **out,
                           ty_error *error)
{
    ty_json_document *document = NULL;
    char path[CHECKPOINT_PATH_SIZE];
    ty_error unread = {0};
    uint32_t found;
    ty_status own = TY_OK;

    *out = NULL;
    step_path(directory, step, path);
    if (ty_file_exists(path)) {
        own = document_read(path, out, error);
        if (own == TY_OK)
            return TY_OK;
    }
    latest_path(directory, path);
    if (!ty_file_exists(path))
        return own;
    if (document_read(path, &document, &unread) != TY_OK)
        return own != TY_OK ? own : ty_fail(error, unread.status, "%s", unread.message);
    if (ty_json_uint32(ty_json_root(document), "step", 1, MAX_STEPS, &found, NULL) == TY_OK &&
        found == step) {
        *out = document;
        return TY_OK;
    }
    ty_json_free(document);
    return own;
}

bool checkpoint_is_incomplete(const char *directory, uint32_t step)
{
    char path[CHECKPOINT_PATH_SIZE];
    struct stat found;

    step_path(directory, step, path);
    return lstat(path, &found) != 0 && errno == ENOENT;
}

/* "step-N" */
static bool is_step(const char *name, uint32_t *step)
{
    char *end;
    unsigned long value;

    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return false;
    value = strtoul(name + 5, &end, 10);
    if (*end != '\0' || value > UINT32_MAX)
        return false;
    *step = (uint32_t)value;
    return true;
}

static int by_step_descending(const void *a, const void *b)
{
    const uint32_t first = *(const uint32_t *)a, second = *(const uint32_t *)b;

    return (first < second) - (first > second);
}

ty_status checkpoint_steps(const char *directory, uint32_t **steps, uint32_t *count,
                           ty_error *error)
{
    DIR *folder = opendir(directory);
    const struct dirent *entry;
    uint32_t step, *grown;
    ty_status status = TY_OK;

    *steps = NULL;
    *count = 0;
    while (folder != NULL && status == TY_OK && (entry = readdir(folder)) != NULL) {
        if (!is_step(entry->d_name, &step))
            continue;
        grown = ty_resize(*steps, *count + 1, sizeof *grown);
        status = ty_check_memory(grown != NULL, error);
        if (grown == NULL)
            break;
        *steps = grown;
        grown[(*count)++] = step;
    }
    if (folder != NULL)
        closedir(folder);
    if (*count > 1)
        qsort(*steps, *count, sizeof **steps, by_step_descending);
    return status;
}

ty_status ty_checkpoint_refuse(const char *directory, ty_error *error)
{
    char path[CHECKPOINT_PATH_SIZE];
    uint32_t *steps, count, i = 0;

    latest_path(directory, path);
    TY_TRY(checkpoint_steps(directory, &steps, &count, error));
    while (i < count && checkpoint_is_incomplete(directory, steps[i]))
        i++;
    if (i < count)
        step_path(directory, steps[i], path);
    ty_free(steps);
    if (ty_file_exists(path))
        return ty_fail(error, TY_EINVAL,
                       "%s: found a checkpoint of an earlier run, expected none: resume from it, "
                       "or choose another folder",
                       path);
    return TY_OK;
}

/* Checks the file that a rank resumes from. If it resumes from several, each rank checks some. */
static ty_status files_check(const ty_checkpoint_query *query, const ty_checkpoint_place *place,
                             ty_error *error)
{
    if (place->stride == 0)
        return checkpoint_rank_check(query->directory, place->step, place->source, &place->file,
                                     error);
    for (uint32_t r = query->rank; r < place->rank_count; r += ty_plan_rank_count(query->plan))
        TY_TRY(checkpoint_rank_check(query->directory, place->step, r, &place->files[r], error));
    return TY_OK;
}

/* The checkpoint after one step. @param is_damaged whether another one may be intact; not if this
 * one is of another plan. The place has step 0 if it is incomplete. */
static ty_status step_find(const ty_checkpoint_query *query, uint32_t step, bool is_only,
                           ty_checkpoint_place *out, bool *is_damaged, ty_error *error)
{
    ty_json_document *document = NULL;
    ty_status status = step_read(query->directory, step, &document, error);

    *out = (ty_checkpoint_place){0};
    *is_damaged = status != TY_OK;
    if (document == NULL)
        return status;
    status = latest_check(ty_json_root(document), query, out, error);
    if (status == TY_OK && !is_only) {
        status = files_check(query, out, error);
        *is_damaged = status != TY_OK;
    }
    ty_json_free(document);
    if (status != TY_OK)
        ty_checkpoint_place_clear(out);
    return status;
}

void ty_checkpoint_place_clear(ty_checkpoint_place *place)
{
    ty_free(place->files);
    *place = (ty_checkpoint_place){0};
}

ty_status ty_checkpoint_find(const ty_checkpoint_query *query, ty_checkpoint_place *out,
                             ty_error *damage, ty_error *error)
{
    ty_checkpoint_place place = {0};
    ty_error first = {0}, why = {0};
    uint32_t *steps, count;
    bool is_damaged = true;
    ty_status status;

    TY_TRY(checkpoint_steps(query->directory, &steps, &count, error));
    for (uint32_t i = 0; i < count && place.step == 0 && is_damaged; i++) {
        if (steps[i] > query->most)
            continue;
        status = step_find(query, steps[i], count == 1, &place, &is_damaged, &why);
        if (status != TY_OK) {
            first = first.status == TY_OK || !is_damaged ? why : first;
        }
        is_damaged |= status == TY_OK;
    }
    ty_free(steps);
    if (place.step > 0 && first.status != TY_OK)
        *damage = first;
    if (place.step == 0 && first.status != TY_OK)
        return ty_fail(error, first.status, "%s", first.message);
    if (place.step == 0 && !query->is_optional)
        return ty_fail(error, TY_EIO, "%s/latest.json: there is no checkpoint to resume from",
                       query->directory);
    *out = place;
    return TY_OK;
}
