/* Which devices share a host, from the cluster inside a plan. Only names are read: topologies/
 * reads the rest, and checked it when the plan was made. */
#include "ty_memory.h"
#include "ty_plan.h"

#include <stdlib.h>
#include <string.h>

/* Beyond it a cluster's reader refuses the file. */
enum { MOST_VERTICES = 1 << 21 };

typedef struct host_name {
    const char *name; /* the document's */
    uint32_t number;  /* among hosts, as the cluster lists them */
} host_name;

typedef struct host_names {
    host_name *hosts; /* [host_count], by name */
    uint32_t host_count;
    const ty_json **devices; /* [device_count] vertices, as the cluster lists them */
    uint32_t device_count;
} host_names;

static int compare_names(const void *left, const void *right)
{
    const host_name *a = left, *b = right;

    return strcmp(a->name, b->name);
}

static ty_status names_read(const ty_json *vertices, host_names *out, ty_error *error)
{
    const size_t count = ty_json_size(vertices);
    ty_status status = TY_OK;

    out->hosts = ty_alloc(count, sizeof *out->hosts);
    out->devices = ty_alloc(count, sizeof(const ty_json *));
    if (out->hosts == NULL || out->devices == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for a plan's hosts");
    for (size_t v = 0; v < count; v++) {
        const ty_json *row = ty_json_at(vertices, v);
        const char *kind, *name;

        TY_CHECK(ty_json_string(row, "kind", &kind, error), status, done);
        TY_CHECK(ty_json_string(row, "name", &name, error), status, done);
        if (strcmp(kind, "host") == 0) {
            out->hosts[out->host_count] = (host_name){name, out->host_count};
            out->host_count++;
        } else if (strcmp(kind, "device") == 0) {
            out->devices[out->device_count++] = row;
        }
    }
    qsort(out->hosts, out->host_count, sizeof *out->hosts, compare_names);
done:
    return status;
}

static ty_status host_find(const host_names *names, const ty_json *device, uint32_t *host,
                           ty_error *error)
{
    host_name wanted = {0};
    const host_name *found;
    ty_status status = ty_json_string(device, "host", &wanted.name, error);

    if (status != TY_OK)
        return status;
    found = names->host_count == 0 ? NULL
                                   : bsearch(&wanted, names->hosts, names->host_count,
                                             sizeof *names->hosts, compare_names);
    if (found == NULL)
        return ty_json_fail(device, error, "as host the name of a vertex of kind host");
    *host = found->number;
    return TY_OK;
}

static ty_status devices_place(const ty_plan *plan, const host_names *names, uint32_t *hosts,
                               ty_error *error)
{
    const uint32_t processes = ty_plan_launched_count(plan), width = ty_plan_width(plan);
    ty_status status = TY_OK;

    for (uint32_t p = 0; p < processes && status == TY_OK; p++) {
        const uint32_t device = ty_plan_device_of_process(plan, p);

        if (device >= names->device_count)
            return ty_fail(error, TY_EPARSE,
                           "plan:/cluster/vertices: found %u devices, expected more than %u, on "
                           "which rank %u is",
                           names->device_count, device, p / width);
        status = host_find(names, names->devices[device], &hosts[p], error);
    }
    return status;
}

ty_status ty_plan_hosts(const ty_plan *plan, uint32_t *hosts, ty_error *error)
{
    ty_json_document *document = NULL;
    const ty_json *vertices;
    host_names names = {0};
    ty_status status;

    TY_CHECK(ty_json_parse(plan->cluster_json, strlen(plan->cluster_json), "plan:/cluster",
                           &document, error),
             status, cleanup);
    TY_CHECK(ty_json_array(ty_json_root(document), "vertices", 1, MOST_VERTICES, &vertices, error),
             status, cleanup);
    TY_CHECK(names_read(vertices, &names, error), status, cleanup);
    TY_CHECK(devices_place(plan, &names, hosts, error), status, cleanup);
cleanup:
    ty_free(names.hosts);
    ty_free(names.devices);
    ty_json_free(document);
    return status;
}
