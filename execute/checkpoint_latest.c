/* latest.json: which checkpoint is the newest, and which plans can go on from it. */
#include "checkpoint_parts.h"

#include <stdio.h>
#include <string.h>

#define CHECKPOINT_SCHEMA "trainyard.checkpoint/2"

enum { MAX_STEPS = 1000000000 };
#define MAX_SAMPLES ((UINT64_C(1) << 53) - 1) /* what JSON holds exactly */

static void latest_path(const char *directory, char *out)
{
    snprintf(out, CHECKPOINT_PATH_SIZE, "%s/latest.json", directory);
}

/* ---- A digest of the file within it: of what it would be with zeros in its place ----------------
 */

#define DIGEST_KEY "\"digest\": \""
static const char no_digest[] = "0000000000000000000000000000000000000000000000000000000000000000";

/* Where the digest begins in the file's text, 64 characters before its end; NULL: nowhere. */
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

ty_status checkpoint_latest_write(const ty_plan *plan, const char *directory,
                                  const ty_checkpoint_place *place, const ty_digest *files,
                                  ty_error *error)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_digest state;
    char path[CHECKPOINT_PATH_SIZE];
    ty_status status = ty_plan_state_digest(plan, &state, error);

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
    ty_json_open(&writer, "files", '[');
    for (uint32_t r = 0; r < place->rank_count; r++)
        ty_json_put_string(&writer, NULL, files[r].hex);
    ty_json_close(&writer, ']');
    ty_json_put_string(&writer, "digest", no_digest);
    ty_json_close(&writer, '}');
    status = ty_text_check(&text, error);
    if (status == TY_OK) {
        digest_put(text.data, text.length);
        status = ty_file_write_text(path, &text, error);
    }
    ty_text_clear(&text);
    return status;
}

ty_status ty_checkpoint_refuse(const char *directory, ty_error *error)
{
    char path[CHECKPOINT_PATH_SIZE];

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
    const ty_json *files;         /* [rank_count] digests */
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
    const char *own;
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
    TY_CHECK(ty_json_array(root, "files", out->place.rank_count, out->place.rank_count, &out->files,
                           error),
             status, done);
    TY_CHECK(ty_json_string(root, "digest", &own, error), status, done); /* checked before */
    status = ty_json_end(root, error);
done:
    return status;
}

/* The digest of the file that this process goes on from. */
static ty_status file_find(const latest *found, uint32_t source, ty_digest *out, ty_error *error)
{
    const ty_json *file = ty_json_at(found->files, source);
    const char *text;
    ty_status status = ty_json_as_string(file, &text, error);

    if (status == TY_OK && strlen(text) != sizeof out->hex - 1)
        status = ty_json_fail(file, error, "64 hexadecimal digits");
    if (status == TY_OK)
        memcpy(out->hex, text, sizeof out->hex);
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
    TY_CHECK(ty_plan_state_digest(plan, &state, error), status, done);
    is_own = strcmp(own.hex, found.place.plan.hex) == 0;
    if (!is_own && strcmp(state.hex, found.state) != 0)
        return ty_json_fail(root, error,
                            "a checkpoint of this very plan (\"%s\", %u ranks), or of one that "
                            "differs in its batch alone, not one of another (\"%s\", %u)",
                            plan->strategy, ty_plan_rank_count(plan), found.strategy,
                            found.place.rank_count);
    if (found.place.step > steps)
        return ty_json_fail(root, error, "a checkpoint of at most %u steps, not one of %u", steps,
                            found.place.step);
    found.place.source = process;
    if (!is_own)
        TY_CHECK(source_find(&found, plan, process, &found.place.source, error), status, done);
    TY_CHECK(file_find(&found, found.place.source, &found.place.file, error), status, done);
    *out = found.place;
done:
    return status;
}

ty_status ty_checkpoint_find(const char *directory, const ty_plan *plan, uint32_t process,
                             uint32_t steps, ty_checkpoint_place *out, ty_error *error)
{
    ty_json_document *document = NULL;
    char path[CHECKPOINT_PATH_SIZE], *text = NULL;
    size_t length;
    ty_status status;

    latest_path(directory, path);
    if (!ty_file_exists(path))
        return ty_fail(error, TY_EIO, "%s: there is no checkpoint to go on from", path);
    TY_CHECK(ty_file_read(path, 0, &text, &length, error), status, done);
    TY_CHECK(ty_json_parse(text, length, path, &document, error), status, done);
    TY_CHECK(digest_check(path, text, length, error), status, done);
    status = latest_check(ty_json_root(document), plan, process, steps, out, error);
done:
    ty_json_free(document);
    ty_free(text);
    return status;
}
