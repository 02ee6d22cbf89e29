/* `kubectl get nodes -o json`: nodes with their labels. The instance type is looked up in the
 * catalogue; region, zone and what the labels say of the network make the tree. */
#include "import_tree.h"

#include <stdio.h>
#include <string.h>

typedef struct reader {
    tree tree;
    uint32_t skipped, assumed;
    bool has_regions;
} reader;

/* A member that is a string; NULL where there is none. */
static const char *member(const ty_json *object, const char *key)
{
    const char *text;

    if (!ty_json_has(object, key) || ty_json_string(object, key, &text, NULL) != TY_OK)
        return NULL;
    return text;
}

/* The first label of several that say the same. */
static const char *label(const ty_json *labels, const char *const *keys)
{
    for (; *keys != NULL; keys++) {
        const char *text = member(labels, *keys);
        if (text != NULL)
            return text;
    }
    return NULL;
}

/* Azure calls its sizes "Standard_...". */
static uint32_t find_host(const catalogue *c, const char *type)
{
    static const char standard[] = "Standard_";

    if (type == NULL)
        return NO_INDEX;
    if (strncmp(type, standard, sizeof standard - 1) == 0)
        type += sizeof standard - 1;
    return catalogue_find_host(c, type);
}

static uint32_t devices_of(const catalogue_host *host)
{
    uint32_t count = 0;

    for (uint32_t v = 0; v < host->vertex_count; v++)
        count += host->vertices[v].kind == TY_VERTEX_DEVICE;
    return count;
}

/* GPUs that a node hands out, where it says: text in its own JSON. NO_INDEX: it does not. */
static uint32_t devices_handed_out(const ty_json *item)
{
    static const char *const places[] = {"allocatable", "capacity"};
    static const char *const resources[] = {"nvidia.com/gpu", "amd.com/gpu"};
    const ty_json *status, *place;

    if (!ty_json_has(item, "status") || ty_json_object(item, "status", &status, NULL) != TY_OK)
        return NO_INDEX;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (!ty_json_has(status, places[i]) ||
            ty_json_object(status, places[i], &place, NULL) != TY_OK)
            continue;
        for (size_t k = 0; k < sizeof resources / sizeof resources[0]; k++) {
            const char *text = member(place, resources[k]);
            uint64_t count;
            if (text != NULL && ty_parse_uint(text, 0, DEVICE_LIMIT, &count, NULL) == TY_OK)
                return (uint32_t)count;
        }
    }
    return NO_INDEX;
}

/* From the outermost: what labels say of a node's place. */
static const struct {
    const char *prefix;
    const char *const keys[4];
} levels[] = {
    {"region", {"topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"}},
    {"zone", {"topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"}},
    {"core", {"network.topology.nvidia.com/core"}},
    {"spine", {"network.topology.nvidia.com/spine", "cloud.google.com/gce-topology-block"}},
    {"leaf", {"network.topology.nvidia.com/leaf", "cloud.google.com/gce-topology-subblock"}},
};

static ty_status add_node(reader *r, const ty_json *item, const ty_json *metadata,
                          const ty_json *labels, ty_error *error)
{
    static const char *const types[] = {"node.kubernetes.io/instance-type",
                                        "beta.kubernetes.io/instance-type", NULL};
    static const char *const gpus[] = {"nvidia.com/gpu.product", "nvidia.com/gpu.count",
                                       "amd.com/gpu.product-name", NULL};
    importer *im = r->tree.im;
    const char *name = member(metadata, "name"), *type = label(labels, types);
    uint32_t host = find_host(im->catalogue, type), parent, node, devices;
    char path[300] = "cluster";

    if (host == NO_INDEX && label(labels, gpus) == NULL && im->host == NO_INDEX) {
        r->skipped++; /* nothing to train on */
        return TY_OK;
    }
    r->assumed += host == NO_INDEX;
    if (host == NO_INDEX)
        host = im->host;
    if (name == NULL)
        return ty_json_fail(metadata, error, "a name");
    if (host == NO_INDEX)
        return ty_fail(error, TY_EINVAL,
                       "%.160s: found node %.60s of type \"%.60s\", expected one of the catalogue, "
                       "or a host to take it for (--host dgx-a100)",
                       im->name, name, type != NULL ? type : "none");
    devices = devices_handed_out(item);
    if (devices != NO_INDEX && devices != devices_of(&im->catalogue->hosts[host]))
        import_note(im, "node %.60s hands out %u GPUs: a %.60s, of %u, is drawn whole", name,
                    devices, im->catalogue->hosts[host].name,
                    devices_of(&im->catalogue->hosts[host]));
    TY_TRY(tree_node_of(&r->tree, path, 0, &parent, error));
    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
        const char *place = label(labels, levels[l].keys);
        size_t length = strlen(path);
        if (place == NULL)
            continue;
        snprintf(path + length, sizeof path - length, "/%s-%.50s", levels[l].prefix, place);
        TY_TRY(tree_node_of(&r->tree, path, 0, &node, error));
        TY_TRY(tree_hang(&r->tree, node, parent, 0, error));
        r->tree.nodes[node].is_wan = l == 0;
        r->has_regions = r->has_regions || l == 0;
        parent = node;
    }
    TY_TRY(tree_node_of(&r->tree, name, 0, &node, error));
    if (r->tree.nodes[node].host != NO_INDEX || r->tree.nodes[node].parent != NO_INDEX)
        return ty_json_fail(metadata, error, "a name that no other node has");
    r->tree.nodes[node].host = host;
    return tree_hang(&r->tree, node, parent, 0, error);
}

static ty_status read_items(reader *r, const ty_json *root, ty_error *error)
{
    const ty_json *items, *metadata, *labels;
    importer *im = r->tree.im;
    uint32_t added;

    TY_TRY(ty_json_array(root, "items", 1, DEVICE_LIMIT, &items, error));
    for (size_t i = 0; i < ty_json_size(items); i++) {
        const ty_json *item = ty_json_at(items, i);
        TY_TRY(ty_json_object(item, "metadata", &metadata, error));
        TY_TRY(ty_json_object(metadata, "labels", &labels, error));
        TY_TRY(add_node(r, item, metadata, labels, error));
    }
    added = (uint32_t)ty_json_size(items) - r->skipped;
    if (added == 0)
        return ty_json_fail(items, error,
                            "nodes with GPUs (nvidia.com/gpu.product), or of an "
                            "instance type of the catalogue");
    if (r->skipped > 0)
        import_note(im, "%u nodes without GPUs are left out", r->skipped);
    if (r->assumed > 0)
        import_note(im, "%u nodes are taken for a %s", r->assumed,
                    im->catalogue->hosts[im->host].name);
    if (r->has_regions)
        import_note(im, "regions are taken as linked by wan10; labels do not say");
    return tree_build(&r->tree, NULL, error);
}

static ty_status read(importer *im, ty_error *error)
{
    ty_json_document *document = NULL;
    reader r = {0};
    ty_status status;

    TY_CHECK(ty_json_parse(im->text, im->length, im->name, &document, error), status, cleanup);
    TY_CHECK(tree_open(&r.tree, im, error), status, cleanup);
    status = read_items(&r, ty_json_root(document), error);
cleanup:
    tree_close(&r.tree);
    ty_json_free(document);
    return status;
}

/* The start says it: {"apiVersion": "v1", "items": [ ... {"apiVersion": "v1", "kind": "Node" */
static bool probe(const char *text, size_t length)
{
    const char *start = text;

    while (length > 0 && (*start == ' ' || *start == '\n' || *start == '\r' || *start == '\t')) {
        start++;
        length--;
    }
    return length > 20 && *start == '{' && strstr(start, "\"apiVersion\"") != NULL &&
           strstr(start, "\"items\"") != NULL && strstr(start, "trainyard.") == NULL;
}

const import_format import_k8s = {"kubernetes", "kubectl get nodes -o json", probe, read};
