/* Writes clusters in the formats of Graphviz and NCCL; Slurm is in export_slurm.c. */
#include "catalogue.h"
#include "export_slurm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Graphviz ---------------------------------------------------------------------------- */

static void quote(ty_text *text, const char *name)
{
    ty_text_add(text, "\"");
    for (; *name != '\0'; name++) {
        if (*name == '"' || *name == '\\')
            ty_text_add(text, "\\");
        ty_text_append(text, name, 1);
    }
    ty_text_add(text, "\"");
}

static void write_dot_vertex(const ty_cluster *c, uint32_t v, ty_text *text)
{
    static const char *const shapes[TY_VERTEX_KIND_COUNT] = {
        [TY_VERTEX_DEVICE] = "box",
        [TY_VERTEX_HOST] = "house",
        [TY_VERTEX_DEVICE_SWITCH] = "diamond",
        [TY_VERTEX_NIC] = "cds",
        [TY_VERTEX_SWITCH] = "hexagon",
    };
    ty_text_add(text, "  ");
    quote(text, c->vertices[v].name);
    ty_text_addf(text, " [shape=%s];\n", shapes[c->vertices[v].kind]);
}

static ty_status export_dot(const ty_cluster *c, const char *host, ty_text *text, ty_error *error)
{
    char bandwidth[32];

    (void)host;
    ty_text_add(text, "graph ");
    quote(text, c->name);
    ty_text_add(text, " {\n  overlap=false;\n  node [fontsize=10];\n  edge [fontsize=8];\n");
    for (uint32_t v = 0; v < c->vertex_count; v++)
        write_dot_vertex(c, v, text);
    for (uint32_t i = 0; i < c->link_count; i++) {
        const ty_link_edge *link = &c->links[i];
        ty_format_bandwidth(link->bandwidth_bytes_per_s, bandwidth);
        ty_text_add(text, "  ");
        quote(text, c->vertices[link->from].name);
        ty_text_add(text, " -- ");
        quote(text, c->vertices[link->to].name);
        ty_text_addf(text, " [label=\"%s %s\"];\n", link->kind, bandwidth);
    }
    ty_text_add(text, "}\n");
    return ty_text_check(text, error);
}

/* ---- NCCL -------------------------------------------------------------------------------- */

typedef struct nccl {
    const ty_cluster *c;
    const catalogue *catalogue;
    uint32_t hub;
    ty_text *text;
    uint32_t *devices; /* [host] number of devices */
    uint32_t gpus, nics, numas, elements;
    bool keeps_bus_ids; /* all devices and NICs of the host have bus ids */
    uint32_t strange;   /* a device without a known "sm"; NO_INDEX */
    bool *is_written;   /* [vertex] */
} nccl;

/* NCCL_TOPO_XML_MAX_NODES of NVIDIA/nccl src/graph/topo.h at 2.30: limit of elements in a file. */
enum { NCCL_MOST_ELEMENTS = 256 };

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static void write_busid(nccl *n, uint32_t vertex)
{
    uint32_t number = vertex - n->hub; /* vertices of a host are consecutive */

    if (n->keeps_bus_ids && n->c->vertices[vertex].bus_id != NULL) {
        ty_text_add(n->text, n->c->vertices[vertex].bus_id);
        return;
    }
    /* if other addresses are kept, in a domain that no machine has */
    ty_text_addf(n->text, "%04x:%02x:00.0", (n->keeps_bus_ids ? 0xff00u : 0) + (number >> 8),
                 number & 255);
}

/* The catalogue's name of a device with this key; NULL: none. */
static const char *match_of(const nccl *n, uint32_t vertex, const char *key)
{
    const ty_cluster *c = n->c;

    return catalogue_alias(
        n->catalogue,
        catalogue_find_device(n->catalogue, c->device_types[c->vertices[vertex].device_type].name),
        key);
}

static void write_pcie(nccl *n, uint32_t link)
{
    static const char *const speeds[] = {"2.5", "5.0", "8.0", "16.0", "32.0", "64.0"};
    const char *kind = n->c->links[link].kind;
    int generation =
        has_prefix(kind, "pcie") && kind[4] >= '1' && kind[4] <= '6' ? kind[4] - '0' : 3;

    ty_text_addf(n->text, " link_speed=\"%s GT/s PCIe\" link_width=\"%.0f\"",
                 speeds[generation - 1], fmax(1, round(16 * n->c->link_lanes[link])));
}

static uint32_t other_end(const ty_link_edge *link, uint32_t vertex)
{
    return link->from == vertex ? link->to : link->from;
}

static void write_indent(nccl *n, int depth)
{
    for (int i = 0; i < depth; i++)
        ty_text_add(n->text, "  ");
}

/* NVLinks and similar links: to other devices, and to switches that only connect devices. */
static void write_gpu_links(nccl *n, uint32_t vertex, int depth)
{
    const ty_cluster *c = n->c;

    for (uint32_t p = c->port_starts[vertex]; p < c->port_starts[vertex + 1]; p++) {
        uint32_t link = c->ports[p].link, next = c->ports[p].vertex;
        const char *kind = c->links[link].kind;
        bool is_switch = has_prefix(kind, "nvlink") && c->vertices[next].kind != TY_VERTEX_DEVICE;
        double count = c->link_lanes[link];
        uint32_t type = catalogue_find_device(
            n->catalogue, c->device_types[c->vertices[vertex].device_type].name);
        if (strcmp(kind, "c2c") == 0) { /* to its processor; MB/s per link of `count` links */
            n->elements++;
            write_indent(n, depth);
            ty_text_addf(n->text, "<c2c bw=\"%.0f\" count=\"1\"/>\n",
                         c->links[link].bandwidth_bytes_per_s / 1e6);
            continue;
        }
        if (!is_switch && c->vertices[next].kind != TY_VERTEX_DEVICE)
            continue;
        if (is_switch && type != NO_INDEX && n->catalogue->devices[type].scale_up_links > 0)
            count *= n->catalogue->devices[type].scale_up_links;
        n->elements++;
        write_indent(n, depth);
        ty_text_addf(n->text, "<%s target=\"", has_prefix(kind, "xgmi") ? "xgmi" : "nvlink");
        write_busid(n, next);
        ty_text_addf(n->text, "\" count=\"%.0f\" tclass=\"%s\"/>\n", fmax(1, round(count)),
                     is_switch ? "0x068000" : "0x030200");
    }
}

static void write_gpu(nccl *n, uint32_t vertex, uint32_t link, int depth)
{
    const char *pci = match_of(n, vertex, "pci"), *gcn = match_of(n, vertex, "gcn");
    uint32_t type = catalogue_find_device(
        n->catalogue, n->c->device_types[n->c->vertices[vertex].device_type].name);
    uint32_t sm = type != NO_INDEX ? n->catalogue->devices[type].sm : 0;

    n->elements += 2;
    if (sm == 0)
        n->strange = vertex;
    write_indent(n, depth);
    ty_text_add(n->text, "<pci busid=\"");
    write_busid(n, vertex);
    ty_text_add(n->text, "\" class=\"0x030200\"");
    if (pci != NULL)
        ty_text_addf(n->text, " vendor=\"0x%.4s\" device=\"0x%.4s\"", pci, pci + 5);
    write_pcie(n, link);
    ty_text_add(n->text, ">\n");
    write_indent(n, depth + 1);
    ty_text_addf(n->text, "<gpu dev=\"%u\" rank=\"%u\" gdr=\"1\"", n->gpus, n->gpus);
    n->gpus++;
    ty_text_addf(n->text, " sm=\"%u\"", sm);
    if (gcn != NULL)
        ty_text_addf(n->text, " gcn=\"%s\"", gcn);
    ty_text_add(n->text, ">\n");
    write_gpu_links(n, vertex, depth + 2);
    write_indent(n, depth + 1);
    ty_text_add(n->text, "</gpu>\n");
    write_indent(n, depth);
    ty_text_add(n->text, "</pci>\n");
}

/* The link to the network gives the speed; without one there is none. */
static void write_nic(nccl *n, uint32_t vertex, uint32_t link, int depth)
{
    const ty_cluster *c = n->c;
    double rate = 0;
    bool is_infiniband = false;

    for (uint32_t p = c->port_starts[vertex]; p < c->port_starts[vertex + 1]; p++)
        if (c->vertices[c->ports[p].vertex].kind == TY_VERTEX_SWITCH) {
            const ty_link_edge *out = &c->links[c->ports[p].link];
            rate += out->bandwidth_bytes_per_s;
            is_infiniband = strchr("qfehnx", out->kind[0]) != NULL &&
                            strstr(out->kind, "dr") != NULL; /* qdr40 ... xdr800 */
        }
    n->elements += 3;
    write_indent(n, depth);
    ty_text_add(n->text, "<pci busid=\"");
    write_busid(n, vertex);
    ty_text_addf(n->text, "\" class=\"%s\"", is_infiniband ? "0x020700" : "0x020000");
    write_pcie(n, link);
    ty_text_add(n->text, ">\n");
    write_indent(n, depth + 1);
    ty_text_addf(n->text,
                 "<nic><net name=\"%s_%u\" dev=\"%u\" speed=\"%.0f\" port=\"1\" "
                 "latency=\"0\" guid=\"0x%x\" maxconn=\"131072\" gdr=\"1\"/></nic>\n",
                 is_infiniband ? "mlx5" : "eth", n->nics, n->nics, rate * 8 / 1e6, n->nics + 1);
    n->nics++;
    write_indent(n, depth);
    ty_text_add(n->text, "</pci>\n");
}

static bool is_smp(const char *kind)
{
    return !has_prefix(kind, "pcie") && !has_prefix(kind, "nvlink") && !has_prefix(kind, "xgmi") &&
           strcmp(kind, "c2c") != 0 && strcmp(kind, "soc") != 0;
}

/* Writes the vertices below a processor or PCIe switch. Each is visited once, which bounds the
 * depth. */
static void write_below_pci(nccl *n, uint32_t parent, int depth)
{
    const ty_cluster *c = n->c;

    for (uint32_t p = c->port_starts[parent]; p < c->port_starts[parent + 1]; p++) {
        uint32_t v = c->ports[p].vertex, link = c->ports[p].link;
        ty_vertex_kind kind = c->vertices[v].kind;
        if (n->is_written[v] || kind == TY_VERTEX_SWITCH || kind == TY_VERTEX_HOST ||
            is_smp(c->links[link].kind) || has_prefix(c->links[link].kind, "nvlink"))
            continue;
        n->is_written[v] = true;
        if (kind == TY_VERTEX_DEVICE) {
            write_gpu(n, v, link, depth);
        } else if (kind == TY_VERTEX_NIC) {
            write_nic(n, v, link, depth);
        } else {
            n->elements++;
            write_indent(n, depth);
            ty_text_add(n->text, "<pci busid=\"");
            write_busid(n, v);
            ty_text_add(n->text, "\" class=\"0x060400\"");
            write_pcie(n, link);
            ty_text_add(n->text, ">\n");
            if (depth < 60)
                write_below_pci(n, v, depth + 1);
            write_indent(n, depth);
            ty_text_add(n->text, "</pci>\n");
        }
    }
}

static void write_cpu(nccl *n, uint32_t vertex, const char *smp)
{
    static const struct {
        const char *link, *attributes;
    } makers[] = {
        {"infinity-fabric",
         "arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"23\" modelid=\"49\""},
        {"qpi-broadwell", "arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"79\""},
        {"upi-skylake", "arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\""},
        {"upi-sapphire-rapids",
         "arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\""},
        {"upi-emerald-rapids",
         "arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"207\""},
        {"arm-interconnect", "arch=\"arm64\""},
        {"power9-x-bus", "arch=\"ppc64le\""},
    };
    const char *attributes = makers[2].attributes;

    for (size_t i = 0; smp != NULL && i < sizeof makers / sizeof makers[0]; i++)
        if (strcmp(makers[i].link, smp) == 0)
            attributes = makers[i].attributes;
    n->elements++;
    ty_text_addf(n->text, "  <cpu numaid=\"%u\" affinity=\"\" %s>\n", n->numas++, attributes);
    write_below_pci(n, vertex, 2);
    ty_text_add(n->text, "  </cpu>\n");
}

/* NCCL identifies devices by PCI address: a file with invented ones describes a machine, but is no
 * NCCL_TOPO_FILE. */
static bool has_bus_ids(const nccl *n, uint32_t host)
{
    const ty_cluster *c = n->c;
    uint32_t hub = c->host_vertices[host];

    for (uint32_t v = hub + 1; v < c->vertex_count && c->vertices[v].kind != TY_VERTEX_HOST; v++)
        if ((c->vertices[v].kind == TY_VERTEX_DEVICE || c->vertices[v].kind == TY_VERTEX_NIC) &&
            c->vertices[v].bus_id == NULL)
            return false;
    return true;
}

/* Processors are the hub's neighbors over links other than PCIe; without any, the hub is the
 * processor. */
static void write_system(nccl *n)
{
    const ty_cluster *c = n->c;

    n->is_written[n->hub] = true;
    if (!n->keeps_bus_ids)
        ty_text_add(n->text, "<!-- a drawing: bus addresses are made up, so that this is no "
                             "NCCL_TOPO_FILE -->\n");
    ty_text_add(n->text, "<system version=\"1\">\n");
    for (uint32_t p = c->port_starts[n->hub]; p < c->port_starts[n->hub + 1]; p++) {
        const ty_link_edge *link = &c->links[c->ports[p].link];
        uint32_t v = other_end(link, n->hub);
        if (c->vertices[v].kind == TY_VERTEX_DEVICE_SWITCH && is_smp(link->kind)) {
            n->is_written[v] = true;
            write_cpu(n, v, link->kind);
        }
    }
    if (n->numas == 0)
        write_cpu(n, n->hub, NULL);
    ty_text_add(n->text, "</system>\n");
}

/* Writes one host; TY_EUNSUPPORTED if a device has no route to its processors. */
static ty_status write_host(nccl *n, uint32_t host, ty_error *error)
{
    const ty_cluster *c = n->c;

    n->hub = c->host_vertices[host];
    n->gpus = n->nics = n->numas = 0;
    n->elements = 1;
    n->strange = NO_INDEX;
    n->keeps_bus_ids = has_bus_ids(n, host);
    write_system(n);
    if (n->gpus != n->devices[host])
        return ty_fail(error, TY_EUNSUPPORTED,
                       "cluster %s: found %u of the %u devices of host %s on PCIe, expected all",
                       c->name, n->gpus, n->devices[host], c->vertices[n->hub].name);
    if (n->strange != NO_INDEX)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "cluster %.80s: found device %.60s (%.40s), expected one whose compute "
                       "capability or compute units the catalogue knows: NCCL needs sm of each",
                       c->name, c->vertices[n->strange].name,
                       c->device_types[c->vertices[n->strange].device_type].name);
    if (n->elements > NCCL_MOST_ELEMENTS)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "cluster %.80s: found %u elements for host %.60s, expected at most the %d "
                       "that NCCL reads",
                       c->name, n->elements, c->vertices[n->hub].name, NCCL_MOST_ELEMENTS);
    return ty_text_check(n->text, error);
}

static ty_status find_host(const ty_cluster *c, const char *name, uint32_t *host, ty_error *error)
{
    uint32_t vertex = ty_cluster_find(c, name);

    for (*host = 0; *host < c->host_count; (*host)++)
        if (c->host_vertices[*host] == vertex)
            return TY_OK;
    return ty_fail(error, TY_EINVAL,
                   "host: found \"%.60s\", expected a host of %.100s, such as %.60s", name, c->name,
                   c->vertices[c->host_vertices[0]].name);
}

/* A file describes one host, so all must be alike: bus numbers count from the hub, and equal hosts
 * give equal files. */
static ty_status check_alike(nccl *n, const ty_text *first, ty_error *error)
{
    ty_text *kept = n->text, text = {0};
    ty_status status = TY_OK;

    n->text = &text;
    for (uint32_t h = 1; h < n->c->host_count; h++) {
        text.length = 0;
        TY_CHECK(write_host(n, h, error), status, cleanup);
        if (text.length == first->length && memcmp(text.data, first->data, text.length) == 0)
            continue;
        status =
            ty_fail(error, TY_EINVAL,
                    "cluster %.80s: found hosts that differ, such as %.60s and %.60s, expected "
                    "the one that the file is about (--host %.60s)",
                    n->c->name, n->c->vertices[n->c->host_vertices[0]].name,
                    n->c->vertices[n->hub].name, n->c->vertices[n->hub].name);
        break;
    }
cleanup:
    ty_text_clear(&text);
    n->text = kept;
    return status;
}

static ty_status export_nccl(const ty_cluster *c, const char *host, ty_text *text, ty_error *error)
{
    ty_text file = {0};
    nccl n = {.c = c, .text = &file};
    uint32_t index = 0;
    catalogue *known = NULL;
    ty_status status;

    n.is_written = ty_alloc(c->vertex_count, sizeof *n.is_written);
    n.devices = ty_alloc(c->host_count, sizeof *n.devices);
    TY_CHECK(ty_check_memory(n.is_written != NULL && n.devices != NULL, error), status, cleanup);
    for (uint32_t d = 0; d < c->device_count; d++)
        n.devices[ty_cluster_device_host(c, d)]++;
    TY_CHECK(catalogue_load(&known, error), status, cleanup);
    n.catalogue = known;
    if (host != NULL)
        TY_CHECK(find_host(c, host, &index, error), status, cleanup);
    TY_CHECK(write_host(&n, index, error), status, cleanup);
    if (host == NULL)
        TY_CHECK(check_alike(&n, &file, error), status, cleanup);
    ty_text_append(text, file.data, file.length);
    status = ty_text_check(text, error);
cleanup:
    catalogue_free(known);
    ty_text_clear(&file);
    ty_free(n.is_written);
    ty_free(n.devices);
    return status;
}

/* ---- All --------------------------------------------------------------------------------- */

ty_status ty_cluster_export(const ty_cluster *cluster, const char *format, const char *host,
                            ty_text *text, ty_error *error)
{
    static const struct {
        const char *name;
        ty_status (*write)(const ty_cluster *cluster, const char *host, ty_text *text,
                           ty_error *error);
        bool is_of_host;
    } formats[] = {
        {"dot", export_dot, false}, {"nccl", export_nccl, true}, {"slurm", export_slurm, false}};
    const char *near;

    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(formats[i].name, format) != 0)
            continue;
        if (host != NULL && !formats[i].is_of_host)
            return ty_fail(error, TY_EINVAL,
                           "host: found \"%.60s\", expected none: %s is about the whole cluster",
                           host, format);
        return formats[i].write(cluster, host, text, error);
    }
    near = ty_suggest(format, formats, sizeof formats / sizeof formats[0], sizeof formats[0]);
    return ty_fail(error, TY_EINVAL, "found format \"%.40s\", expected dot, nccl or slurm%s%s%s",
                   format, near != NULL ? "; did you mean \"" : "", near != NULL ? near : "",
                   near != NULL ? "\"?" : "");
}
