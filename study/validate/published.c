/* From the names in published measurements to devices, links and workloads. */
#include "published.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* No source here has more; each costs memory. */
#define MOST_DEVICES 16384

typedef enum match { MATCH_STARTS, MATCH_CONTAINS, MATCH_IS } match;

static const char *const match_keys[] = {"starts", "contains", "is"};

static bool matches(match how, const char *text, const char *pattern)
{
    if (how == MATCH_STARTS)
        return strncmp(text, pattern, strlen(pattern)) == 0;
    return how == MATCH_IS ? strcmp(text, pattern) == 0 : strstr(text, pattern) != NULL;
}

static ty_status open_names(ty_json_document **document, ty_error *error)
{
    char *path = NULL;
    ty_status status = TY_OK;

    TY_CHECK(ty_data_path("study/catalogue", "published.json", &path, error), status, cleanup);
    TY_CHECK(ty_json_load(path, document, error), status, cleanup);
    status = ty_json_schema(ty_json_root(*document), "trainyard.published/1", error);

cleanup:
    ty_free(path);
    return status;
}

/* The first row of a list that the text matches; NULL: none. */
static ty_status find(const ty_json_document *document, const char *list, match how,
                      const char *text, const ty_json **out, ty_error *error)
{
    const ty_json *rows;
    ty_status status = ty_json_array(ty_json_root(document), list, 1, UINT16_MAX, &rows, error);

    *out = NULL;
    for (size_t i = 0; status == TY_OK && i < ty_json_size(rows); i++) {
        const ty_json *row = ty_json_at(rows, i);
        const char *pattern = ""; /* is in every text: the row is for what no other one names */
        if (!ty_json_has(row, "otherwise"))
            status = ty_json_string(row, match_keys[how], &pattern, error);
        if (status == TY_OK && matches(how, text, pattern)) {
            *out = row;
            break;
        }
    }
    return status;
}

/* ---- Clusters ---------------------------------------------------------------------------- */

/* Whether a row of "hosts" is what the record ran on: what it says of node and network must be in
   the record's, and several hosts must be used in full. */
static ty_status is_host(const ty_json *row, const ty_record *record, uint32_t hosts,
                         uint32_t per_host, bool *out, ty_error *error)
{
    const char *starts, *node = "", *network = "";
    uint32_t devices;
    ty_status status;

    TY_CHECK(ty_json_string(row, "starts", &starts, error), status, done);
    TY_CHECK(ty_json_uint32(row, "per_host", 1, 1024, &devices, error), status, done);
    if (ty_json_has(row, "node"))
        TY_CHECK(ty_json_string(row, "node", &node, error), status, done);
    if (ty_json_has(row, "network"))
        TY_CHECK(ty_json_string(row, "network", &network, error), status, done);
    *out = matches(MATCH_STARTS, record->gpu, starts) &&
           matches(MATCH_CONTAINS, record->node, node) &&
           (hosts == 1 || matches(MATCH_CONTAINS, record->network, network)) &&
           (per_host == devices || (hosts == 1 && per_host < devices));
done:
    return status;
}

/* "2x dgx1-v100" where a row names the host; "" where none does. */
static ty_status host_line(const ty_json_document *names, const ty_record *record, uint32_t hosts,
                           uint32_t per_host, ty_text *line, ty_error *error)
{
    const ty_json *rows;
    const char *host;
    ty_status status = ty_json_array(ty_json_root(names), "hosts", 1, UINT16_MAX, &rows, error);

    for (size_t i = 0; status == TY_OK && i < ty_json_size(rows) && line->length == 0; i++) {
        bool is_it = false;
        TY_CHECK(is_host(ty_json_at(rows, i), record, hosts, per_host, &is_it, error), status,
                 done);
        if (!is_it)
            continue;
        TY_CHECK(ty_json_string(ty_json_at(rows, i), "host", &host, error), status, done);
        ty_text_addf(line, "%ux %s", hosts, host);
    }
done:
    return status;
}

static ty_status device_line(const ty_json_document *names, const ty_json *gpu,
                             const ty_record *record, uint32_t hosts, uint32_t per_host,
                             ty_text *line, char reason[TY_SKIP_REASON_SIZE], ty_error *error)
{
    const char *device, *inside, *link = "eth10"; /* not used inside one host */
    const ty_json *network = NULL;
    ty_status status = TY_OK;

    TY_CHECK(ty_json_string(gpu, "device", &device, error), status, done);
    TY_CHECK(ty_json_string(gpu, "inside", &inside, error), status, done);
    if (hosts > 1) {
        TY_CHECK(find(names, "networks", MATCH_CONTAINS, record->network, &network, error), status,
                 done);
        if (network == NULL) {
            snprintf(reason, TY_SKIP_REASON_SIZE, "network between nodes not stated, or not known");
            goto done;
        }
        TY_CHECK(ty_json_string(network, "link", &link, error), status, done);
    }
    ty_text_addf(line, "leaf:1 host:%u gpu:%u @%s %s %s", hosts, per_host, device, inside, link);
done:
    return status;
}

static ty_status describe(const ty_json_document *names, const ty_record *record, ty_text *line,
                          char reason[TY_SKIP_REASON_SIZE], ty_error *error)
{
    uint32_t gpus = (uint32_t)record->gpus, per_host = gpus, hosts;
    const ty_json *gpu;
    ty_status status = TY_OK;

    TY_CHECK(find(names, "gpus", MATCH_STARTS, record->gpu, &gpu, error), status, done);
    if (gpu == NULL) {
        snprintf(reason, TY_SKIP_REASON_SIZE, "device not stated, or not in the catalogue");
        goto done;
    }
    if (record->gpus_per_node >= 1 && record->gpus_per_node < gpus)
        per_host = (uint32_t)record->gpus_per_node;
    hosts = (gpus + per_host - 1) / per_host;
    TY_CHECK(host_line(names, record, hosts, per_host, line, error), status, done);
    if (line->length == 0)
        status = device_line(names, gpu, record, hosts, per_host, line, reason, error);
done:
    return status;
}

ty_status ty_published_cluster_line(const ty_record *record, char **out,
                                    char reason[TY_SKIP_REASON_SIZE], ty_error *error)
{
    ty_json_document *names = NULL;
    ty_text line = {0};
    ty_status status = TY_OK;

    *out = NULL;
    if (!(record->gpus >= 1 && record->gpus <= MOST_DEVICES)) {
        snprintf(reason, TY_SKIP_REASON_SIZE, "number of devices not stated, or above %d",
                 MOST_DEVICES);
        return TY_OK;
    }
    TY_CHECK(open_names(&names, error), status, cleanup);
    TY_CHECK(describe(names, record, &line, reason, error), status, cleanup);
    if (line.length > 0)
        status = ty_text_take(&line, out, error);

cleanup:
    ty_text_clear(&line);
    ty_json_free(names);
    return status;
}

ty_status ty_published_cluster(const ty_record *record, ty_cluster **cluster,
                               char reason[TY_SKIP_REASON_SIZE], ty_error *error)
{
    char *line = NULL;
    ty_status status = ty_published_cluster_line(record, &line, reason, error);

    *cluster = NULL;
    if (status == TY_OK && line != NULL)
        status = ty_cluster_open(line, NULL, cluster, error);
    ty_free(line);
    return status;
}

/* ---- Workloads and software -------------------------------------------------------------- */

static ty_status copy_text(const ty_json *row, const char *key, char *out, size_t size,
                           ty_error *error)
{
    const char *text;
    ty_status status = ty_json_string(row, key, &text, error);

    if (status == TY_OK)
        snprintf(out, size, "%s", text);
    return status;
}

ty_status ty_published_workload(const ty_record *record, char name[TY_PUBLISHED_NAME],
                                char reason[TY_SKIP_REASON_SIZE], ty_error *error)
{
    ty_json_document *names = NULL;
    const ty_json *row;
    ty_status status = TY_OK;

    name[0] = '\0';
    TY_CHECK(open_names(&names, error), status, cleanup);
    TY_CHECK(find(names, "models", MATCH_IS, record->model, &row, error), status, cleanup);
    if (row == NULL)
        snprintf(reason, TY_SKIP_REASON_SIZE, "model is not in the zoo: %.100s",
                 record->model[0] != '\0' ? record->model : "not stated");
    else
        status = copy_text(row, "workload", name, TY_PUBLISHED_NAME, error);

cleanup:
    ty_json_free(names);
    return status;
}

ty_status ty_published_exchange_of(const ty_record *record, ty_published_exchange *out,
                                   ty_error *error)
{
    ty_json_document *names = NULL;
    const ty_json *row;
    const char *how = record->update;
    ty_status status = TY_OK;

    *out = (ty_published_exchange){.algorithm = "automatic"};
    TY_CHECK(open_names(&names, error), status, cleanup);
    if (how[0] == '\0')
        how = record->schedule;
    TY_CHECK(find(names, "buckets", MATCH_CONTAINS, how, &row, error), status, cleanup);
    if (row == NULL) {
        status = ty_fail(error, TY_EPARSE, "published.json: no exchange for \"%s\"", how);
        goto cleanup;
    }
    TY_CHECK(ty_json_uint64(row, "bytes", 1, UINT32_MAX, &out->bucket_bytes, error), status,
             cleanup);
    if (ty_json_has(row, "algorithm"))
        TY_CHECK(copy_text(row, "algorithm", out->algorithm, sizeof out->algorithm, error), status,
                 cleanup);
    if (ty_json_has(row, "stack"))
        status = copy_text(row, "stack", out->stack, sizeof out->stack, error);

cleanup:
    ty_json_free(names);
    return status;
}

ty_status ty_published_gradients_of(const ty_record *record, ty_published_gradients *out,
                                    ty_error *error)
{
    ty_json_document *names = NULL;
    const ty_json *rows;
    ty_status status = TY_OK;

    *out = (ty_published_gradients){.items = 1};
    TY_CHECK(open_names(&names, error), status, cleanup);
    TY_CHECK(ty_json_array(ty_json_root(names), "gradients", 1, UINT16_MAX, &rows, error), status,
             cleanup);
    for (size_t i = 0; i < ty_json_size(rows); i++) {
        const ty_json *row = ty_json_at(rows, i);
        const char *name, *key = "variant", *text = "";
        TY_CHECK(ty_json_string(row, "is", &name, error), status, cleanup);
        if (ty_json_has(row, "key"))
            TY_CHECK(ty_json_string(row, "key", &key, error), status, cleanup);
        if (ty_json_has(row, "contains"))
            TY_CHECK(ty_json_string(row, "contains", &text, error), status, cleanup);
        if (!matches(MATCH_IS, record->model, name) ||
            !matches(MATCH_CONTAINS, ty_record_text(record, "model", key), text))
            continue;
        TY_CHECK(ty_json_number(row, "parameters", 1, 1e13, &out->parameters, error), status,
                 cleanup);
        if (ty_json_has(row, "items"))
            status = ty_json_number(row, "items", 1, 1e9, &out->items, error);
        break;
    }

cleanup:
    ty_json_free(names);
    return status;
}

ty_status ty_published_is_fitted(const ty_record *record, bool *out, ty_error *error)
{
    ty_json_document *names = NULL;
    const char *model;
    ty_status status = TY_OK;

    TY_CHECK(open_names(&names, error), status, cleanup);
    TY_CHECK(ty_json_string(ty_json_root(names), "fitted_image_model", &model, error), status,
             cleanup);
    *out = strcmp(record->model, model) == 0;

cleanup:
    ty_json_free(names);
    return status;
}

/* ---- Language models ----------------------------------------------------------------------- */

static ty_status read_software(const ty_json *row, ty_published_software *out, ty_error *error)
{
    ty_status status = TY_OK;

    TY_CHECK(copy_text(row, "stack", out->stack, sizeof out->stack, error), status, done);
    TY_CHECK(copy_text(row, "device", out->device, sizeof out->device, error), status, done);
    TY_CHECK(copy_text(row, "inside", out->inside, sizeof out->inside, error), status, done);
    TY_CHECK(copy_text(row, "network", out->network, sizeof out->network, error), status, done);
    if (ty_json_has(row, "zero"))
        TY_CHECK(ty_json_number(row, "zero", 0, 3, &out->zero, error), status, done);
    if (ty_json_has(row, "sequence_parallel"))
        TY_CHECK(ty_json_bool(row, "sequence_parallel", &out->sequence_parallel, error), status,
                 done);
    if (ty_json_has(row, "interleave"))
        TY_CHECK(ty_json_number(row, "interleave", 1, 1024, &out->interleave, error), status, done);
    if (ty_json_has(row, "precision"))
        TY_CHECK(copy_text(row, "precision", out->precision, sizeof out->precision, error), status,
                 done);
    if (ty_json_has(row, "recompute"))
        TY_CHECK(copy_text(row, "recompute", out->recompute, sizeof out->recompute, error), status,
                 done);
    if (ty_json_has(row, "sharded_stack"))
        TY_CHECK(
            copy_text(row, "sharded_stack", out->sharded_stack, sizeof out->sharded_stack, error),
            status, done);
    if (ty_json_has(row, "pod"))
        TY_CHECK(ty_json_number(row, "pod", 1, MOST_DEVICES, &out->pod, error), status, done);
    if (ty_json_has(row, "hidden"))
        TY_CHECK(ty_json_number(row, "hidden", 1, UINT32_MAX, &out->hidden, error), status, done);
    if (ty_json_has(row, "local_batch"))
        status = ty_json_bool(row, "local_batch", &out->is_local_batch, error);
done:
    return status;
}

ty_status ty_published_language_model(const ty_record *record, ty_published_model *out,
                                      ty_error *error)
{
    ty_json_document *names = NULL;
    const ty_json *row;
    ty_status status = TY_OK;

    *out = (ty_published_model){.words = ""};
    TY_CHECK(open_names(&names, error), status, cleanup);
    TY_CHECK(find(names, "language_models", MATCH_IS, record->model, &row, error), status, cleanup);
    if (row == NULL)
        goto cleanup;
    if (ty_json_has(row, "workload"))
        TY_CHECK(copy_text(row, "workload", out->words, sizeof out->words, error), status, cleanup);
    if (ty_json_has(row, "tokens"))
        TY_CHECK(ty_json_number(row, "tokens", 1, UINT32_MAX, &out->tokens, error), status,
                 cleanup);
    if (ty_json_has(row, "whole"))
        TY_CHECK(ty_json_bool(row, "whole", &out->is_whole, error), status, cleanup);
    if (ty_json_has(row, "sequence"))
        status = ty_json_number(row, "sequence", 1, UINT32_MAX, &out->sequence, error);

cleanup:
    ty_json_free(names);
    return status;
}

ty_status ty_published_software_of(const ty_record *record, ty_published_software *out,
                                   ty_error *error)
{
    ty_json_document *names = NULL;
    const ty_json *rows;
    ty_status status = TY_OK;

    *out = (ty_published_software){.stack = ""};
    TY_CHECK(open_names(&names, error), status, cleanup);
    TY_CHECK(ty_json_array(ty_json_root(names), "language_stacks", 1, UINT16_MAX, &rows, error),
             status, cleanup);
    for (size_t i = 0; i < ty_json_size(rows); i++) {
        const ty_json *row = ty_json_at(rows, i);
        const char *family = "", *gpu;
        if (ty_json_has(row, "family"))
            TY_CHECK(ty_json_string(row, "family", &family, error), status, cleanup);
        TY_CHECK(ty_json_string(row, "gpu", &gpu, error), status, cleanup);
        if (!matches(MATCH_STARTS, record->id, family) || !matches(MATCH_STARTS, record->gpu, gpu))
            continue;
        status = read_software(row, out, error);
        break;
    }

cleanup:
    ty_json_free(names);
    return status;
}
