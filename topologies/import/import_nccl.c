/* NCCL's topology XML (NCCL_TOPO_DUMP_FILE, NCCL_TOPO_FILE), and RCCL's dialect of it.
 *
 * A dump has GPUs with their links and NICs with their ports. Files that clouds ship with virtual
 * machines are sparse: at best they have PCIe functions with classes, and NCCL reads the rest from
 * the running system. Here options supply it. NVSwitches appear only as targets of links and become
 * a single switch, as in NCCL. */
#include "importer.h"
#include "xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_LIMIT = 64, LONGEST_BUSID = 32 };

typedef struct gpu {
    uint32_t vertex, type; /* type: of the catalogue */
    const char *busid;
    const xml_element *element; /* NULL in a sparse file */
} gpu;

/* One machine of the file. */
typedef struct machine {
    importer *im;
    uint32_t number, hub, fabric; /* fabric: NO_INDEX until the first NIC */
    uint32_t gpu_count, gpu_room;
    gpu *gpus;
    uint32_t nic_count, bare_nics; /* bare: without a rate */
    uint32_t device_switch;        /* NVSwitch */
} machine;

static bool has_class(const xml_element *pci, const char *prefix)
{
    const char *class = xml_attribute(pci, "class");
    return class != NULL && strncmp(class, prefix, strlen(prefix)) == 0;
}

static const xml_element *child(const xml_element *element, const char *name)
{
    const xml_element *c = xml_first(element);

    while (c != NULL && !xml_is(c, name))
        c = xml_next(c);
    return c;
}

/* NVIDIA GPUs are VGA or 3D controllers, AMD's also processing accelerators. */
static bool is_gpu(const xml_element *pci)
{
    return child(pci, "gpu") != NULL || has_class(pci, "0x03") || has_class(pci, "0x12");
}

static bool is_nic(const xml_element *pci)
{
    return child(pci, "nic") != NULL || has_class(pci, "0x02");
}

static const char *busid_of(const xml_element *pci)
{
    const char *busid = xml_attribute(pci, "busid");
    return busid != NULL ? busid : "none";
}

/* ---- GPUs -------------------------------------------------------------------------------- */

/* By PCI identity, by architecture, else by the options. */
static uint32_t type_of(const importer *im, const xml_element *pci, const xml_element *element)
{
    const char *vendor = xml_attribute(pci, "vendor"), *device = xml_attribute(pci, "device");
    const char *gcn = element != NULL ? xml_attribute(element, "gcn") : NULL;
    const char *sm = element != NULL ? xml_attribute(element, "sm") : NULL;
    uint32_t type = NO_INDEX;
    char identity[32];

    if (im->device != NO_INDEX)
        return im->device;
    if (vendor != NULL && device != NULL && strlen(vendor) == 6 && strlen(device) == 6) {
        snprintf(identity, sizeof identity, "%s:%s", vendor + 2, device + 2);
        type = catalogue_match_device(im->catalogue, "pci", identity);
    }
    if (type == NO_INDEX && gcn != NULL) /* RCCL: "sm" counts compute units */
        type = catalogue_match_device(im->catalogue, "gcn", gcn);
    else if (type == NO_INDEX && sm != NULL)
        type = catalogue_match_device(im->catalogue, "sm", sm);
    return type != NO_INDEX ? type : import_device(im);
}

static ty_status add_gpu(machine *m, const xml_element *pci, uint32_t parent, ty_error *error)
{
    importer *im = m->im;
    gpu added = {.busid = busid_of(pci), .element = child(pci, "gpu")};
    import_pcie link =
        import_pcie_of(xml_attribute(pci, "link_speed"), xml_attribute(pci, "link_width"));
    char name[64];

    TY_TRY(ty_reserve(&m->gpus, m->gpu_count, &m->gpu_room, sizeof *m->gpus, error));
    added.type = type_of(im, pci, added.element);
    if (added.type == NO_INDEX)
        return import_need_device(im, "does not say what its GPUs are", error);
    snprintf(name, sizeof name, "host-%u/gpu-%u", m->number, m->gpu_count);
    TY_TRY(builder_device(&im->builder, name, added.type, m->hub, &added.vertex, error));
    if (xml_attribute(pci, "busid") != NULL)
        TY_TRY(ty_cluster_set_bus_id(im->cluster, added.vertex, added.busid, error));
    m->gpus[m->gpu_count++] = added;
    return import_pcie_link(im, added.vertex, parent, link, false, error);
}

/* ---- NICs -------------------------------------------------------------------------------- */

static ty_status need_fabric(machine *m, ty_error *error)
{
    if (m->fabric != NO_INDEX)
        return TY_OK;
    return ty_cluster_add_vertex(m->im->cluster, TY_VERTEX_SWITCH, "fabric", 0, &m->fabric, error);
}

/* Ports of one adapter share its link to the host, so they become one NIC with their total rate. A
 * speed that is not positive is unknown, as in NCCL. */
static ty_status rate_of(const machine *m, const xml_element *nic, double *sum, ty_error *error)
{
    const double most_megabits = 1e8;

    *sum = 0;
    for (const xml_element *net = nic == NULL ? NULL : xml_first(nic); net != NULL;
         net = xml_next(net)) {
        const char *speed = xml_is(net, "net") ? xml_attribute(net, "speed") : NULL;
        char *end = NULL;
        double megabits = speed == NULL ? 0 : strtod(speed, &end);
        if (speed != NULL && (end == speed || *end != '\0' || !(megabits <= most_megabits)))
            return import_fail(m->im, error, xml_line(net),
                               "found a speed of \"%.40s\", expected Mbit/s up to %g", speed,
                               most_megabits);
        if (megabits > 0)
            *sum += megabits * 1e6;
    }
    return TY_OK;
}

static ty_status add_nic(machine *m, const xml_element *pci, const xml_element *nic,
                         uint32_t parent, ty_error *error)
{
    importer *im = m->im;
    double rate;
    const xml_element *net = nic != NULL ? child(nic, "net") : NULL;
    const char *label = net != NULL ? xml_attribute(net, "name") : NULL;
    bool is_infiniband = pci != NULL && has_class(pci, "0x0207");
    import_pcie link = import_pcie_of(pci == NULL ? NULL : xml_attribute(pci, "link_speed"),
                                      pci == NULL ? NULL : xml_attribute(pci, "link_width"));
    uint32_t vertex;
    char name[64];

    TY_TRY(rate_of(m, nic, &rate, error));
    is_infiniband = is_infiniband || (label != NULL && strncmp(label, "mlx", 3) == 0);
    snprintf(name, sizeof name, "host-%u/nic-%u", m->number, m->nic_count++);
    TY_TRY(ty_cluster_add_vertex(im->cluster, TY_VERTEX_NIC, name, 0, &vertex, error));
    if (pci != NULL && xml_attribute(pci, "busid") != NULL)
        TY_TRY(ty_cluster_set_bus_id(im->cluster, vertex, busid_of(pci), error));
    TY_TRY(import_pcie_link(im, vertex, parent, link, true, error));
    TY_TRY(need_fabric(m, error));
    if (rate > 0)
        return import_network_link(im, vertex, m->fabric, rate, is_infiniband, error);
    TY_TRY(import_need_host(im, "does not say how fast its NICs are", error));
    m->bare_nics++;
    return builder_link(&im->builder, vertex, m->fabric, im->catalogue->hosts[im->host].network,
                        false, 1, error);
}

/* ---- The tree ---------------------------------------------------------------------------- */

static ty_status add_pci(machine *m, const xml_element *pci, uint32_t parent, int depth,
                         ty_error *error);

static ty_status add_children(machine *m, const xml_element *element, uint32_t parent, int depth,
                              ty_error *error)
{
    ty_status status = TY_OK;

    if (depth > DEPTH_LIMIT)
        return import_fail(m->im, error, xml_line(element),
                           "found PCIe bridges nested deeper than %d, expected fewer", DEPTH_LIMIT);
    for (const xml_element *c = xml_first(element); c != NULL && status == TY_OK; c = xml_next(c)) {
        if (xml_is(c, "pci"))
            status = add_pci(m, c, parent, depth + 1, error);
        else if (xml_is(c, "nic")) /* below a processor: a NIC with unknown place */
            status = add_nic(m, NULL, c, parent, error);
    }
    return status;
}

/* It becomes part of names, and exports write it. */
static ty_status check_busid(const machine *m, const xml_element *pci, ty_error *error)
{
    const char *busid = xml_attribute(pci, "busid");

    if (busid == NULL || (busid[0] != '\0' && strlen(busid) <= LONGEST_BUSID &&
                          strspn(busid, "0123456789abcdefABCDEF:.") == strlen(busid)))
        return TY_OK;
    return import_fail(m->im, error, xml_line(pci),
                       "found the bus id '%.40s', expected one such as 0000:1b:00.0", busid);
}

/* A bridge has children; the options define a function without class and children (a NIC or a
 * GPU). */
static ty_status add_pci(machine *m, const xml_element *pci, uint32_t parent, int depth,
                         ty_error *error)
{
    import_pcie link =
        import_pcie_of(xml_attribute(pci, "link_speed"), xml_attribute(pci, "link_width"));
    uint32_t vertex;
    char name[96];

    TY_TRY(check_busid(m, pci, error));
    if (is_gpu(pci))
        return add_gpu(m, pci, parent, error);
    if (is_nic(pci))
        return add_nic(m, pci, child(pci, "nic"), parent, error);
    if (child(pci, "pci") == NULL)
        return TY_OK;
    snprintf(name, sizeof name, "host-%u/pci-%.40s", m->number, busid_of(pci));
    TY_TRY(ty_cluster_add_vertex(m->im->cluster, TY_VERTEX_DEVICE_SWITCH, name, 0, &vertex, error));
    if (xml_attribute(pci, "busid") != NULL)
        TY_TRY(ty_cluster_set_bus_id(m->im->cluster, vertex, busid_of(pci), error));
    TY_TRY(import_pcie_link(m->im, vertex, parent, link, true, error));
    return add_children(m, pci, vertex, depth, error);
}

static ty_status add_processors(machine *m, const xml_element *root, ty_error *error)
{
    uint32_t count = 0, vertex;
    char name[64];

    for (const xml_element *cpu = xml_first(root); cpu != NULL; cpu = xml_next(cpu))
        count += xml_is(cpu, "cpu");
    if (count == 0)
        return import_fail(m->im, error, xml_line(root), "found no <cpu>, expected at least one");
    for (const xml_element *cpu = xml_first(root); cpu != NULL; cpu = xml_next(cpu)) {
        const char *numa = xml_attribute(cpu, "numaid");
        if (!xml_is(cpu, "cpu"))
            continue;
        vertex = m->hub;
        if (count > 1) { /* a single one is the hub */
            snprintf(name, sizeof name, "host-%u/cpu-%.20s", m->number, numa != NULL ? numa : "");
            TY_TRY(ty_cluster_add_vertex(m->im->cluster, TY_VERTEX_DEVICE_SWITCH, name, 0, &vertex,
                                         error));
            TY_TRY(builder_link(
                &m->im->builder, vertex, m->hub,
                import_smp_link(m->im, xml_attribute(cpu, "arch"), xml_attribute(cpu, "vendor"),
                                xml_attribute(cpu, "familyid"), xml_attribute(cpu, "modelid")),
                false, 1, error));
        }
        TY_TRY(add_children(m, cpu, vertex, 0, error));
    }
    return TY_OK;
}

/* ---- Links among GPUs -------------------------------------------------------------------- */

static uint32_t find_gpu(const machine *m, const char *busid)
{
    for (uint32_t g = 0; g < m->gpu_count; g++)
        if (strcmp(m->gpus[g].busid, busid) == 0)
            return g;
    return NO_INDEX;
}

static double links_of(const xml_element *link)
{
    const char *count = xml_attribute(link, "count");
    double links = count == NULL ? 1 : strtod(count, NULL);
    return links >= 1 && links <= 1000 ? links : 0;
}

static bool is_among_gpus(const xml_element *link)
{
    return xml_is(link, "nvlink") || xml_is(link, "xgmi");
}

/* Adds links to another GPU. Both ends list them; the lower one adds them. */
static ty_status add_direct(machine *m, uint32_t from, uint32_t to, const xml_element *link,
                            double links, ty_error *error)
{
    const importer *im = m->im;
    uint32_t kind = im->catalogue->devices[m->gpus[from].type].direct;

    if (from > to)
        return TY_OK;
    if (kind == NO_INDEX)
        return import_fail(im, error, xml_line(link),
                           "found a link between GPUs, expected none on a %s",
                           im->catalogue->device_types[m->gpus[from].type].name);
    return builder_link(&m->im->builder, m->gpus[from].vertex, m->gpus[to].vertex, kind, false,
                        links, error);
}

static ty_status add_switched(machine *m, uint32_t g, double links, ty_error *error)
{
    const importer *im = m->im;
    const catalogue_device *device = &im->catalogue->devices[m->gpus[g].type];
    char name[64];

    if (device->scale_up == NO_INDEX)
        return import_fail(im, error, 0, "found %g links to a switch, expected none on a %s", links,
                           im->catalogue->device_types[m->gpus[g].type].name);
    snprintf(name, sizeof name, "host-%u/nvswitch", m->number);
    if (m->device_switch == NO_INDEX)
        TY_TRY(ty_cluster_add_vertex(im->cluster, TY_VERTEX_DEVICE_SWITCH, name, 0,
                                     &m->device_switch, error));
    return builder_link(&m->im->builder, m->gpus[g].vertex, m->device_switch, device->scale_up,
                        false, links / device->scale_up_links, error);
}

static ty_status add_links(machine *m, uint32_t g, ty_error *error)
{
    double switched = 0;
    const xml_element *gpu_element = m->gpus[g].element;

    for (const xml_element *l = gpu_element == NULL ? NULL : xml_first(gpu_element); l != NULL;
         l = xml_next(l)) {
        const char *target = xml_attribute(l, "target"), *class = xml_attribute(l, "tclass");
        double links = is_among_gpus(l) && target != NULL ? links_of(l) : 0;
        uint32_t other = links > 0 ? find_gpu(m, target) : NO_INDEX;
        ty_status status = TY_OK;
        if (!is_among_gpus(l))
            continue;
        if (links <= 0)
            return import_fail(m->im, error, xml_line(l),
                               "found a link between GPUs without target or with a count of "
                               "\"%.20s\", expected both",
                               xml_attribute(l, "count") != NULL ? xml_attribute(l, "count") : "");
        if (other == g && m->number > 0)
            continue;   /* noted for the first copy */
        if (other == g) /* a hand-made file: the GPU itself is no neighbour */
            import_note(m->im, "GPU %u names itself as its NVLink neighbour: left out", g);
        else if (other != NO_INDEX)
            status = add_direct(m, g, other, l, links, error);
        else if (class == NULL || strncmp(class, "0x0680", 6) == 0)
            switched += links; /* an NVSwitch, seen or (in virtual machines) not */
        else if (m->number == 0)
            import_note(m->im, "GPU %u is linked to %.40s, which is not in the file: left out", g,
                        target);
        if (status != TY_OK)
            return status;
    }
    return switched > 0 ? add_switched(m, g, switched, error) : TY_OK;
}

/* A sparse file omits the GPUs' links, which the machine has. */
static ty_status add_known_links(machine *m, ty_error *error)
{
    uint32_t sparse = 0;
    ty_status status = TY_OK;

    for (uint32_t g = 0; g < m->gpu_count && status == TY_OK; g++) {
        const catalogue_device *d = &m->im->catalogue->devices[m->gpus[g].type];
        if (m->gpus[g].element != NULL || m->gpu_count == 1)
            continue;
        sparse++;
        if (d->scale_up != NO_INDEX && d->scale_up_links > 6) /* NVSwitch from the A100 on */
            status = add_switched(m, g, d->scale_up_links, error);
    }
    if (sparse > 0 && m->number == 0)
        import_note(m->im,
                    m->device_switch != NO_INDEX
                        ? "the file leaves out the links among GPUs: all of a %s's to one NVSwitch"
                        : "the file leaves out the links among GPUs: none drawn for %s",
                    m->im->catalogue->device_types[m->gpus[0].type].name);
    return status;
}

/* ---- The file ---------------------------------------------------------------------------- */

static ty_status add_machine(importer *im, const xml_element *root, uint32_t number,
                             uint32_t *fabric, ty_error *error)
{
    machine m = {.im = im, .number = number, .fabric = *fabric, .device_switch = NO_INDEX};
    char name[32];
    ty_status status;

    snprintf(name, sizeof name, "host-%u", number);
    TY_CHECK(ty_cluster_add_vertex(im->cluster, TY_VERTEX_HOST, name, 0, &m.hub, error), status,
             cleanup);
    TY_CHECK(add_processors(&m, root, error), status, cleanup);
    for (uint32_t g = 0; g < m.gpu_count; g++)
        TY_CHECK(add_links(&m, g, error), status, cleanup);
    TY_CHECK(add_known_links(&m, error), status, cleanup);
    if (m.bare_nics > 0 && number == 0)
        import_note(im, "the rate of %u NICs is not in the file: %s, as of %s", m.bare_nics,
                    im->catalogue->links[im->catalogue->hosts[im->host].network].name,
                    im->catalogue->hosts[im->host].name);
    *fabric = m.fabric;
cleanup:
    ty_free(m.gpus);
    return status;
}

static bool names_gpu(const xml_element *element, int depth)
{
    for (const xml_element *c = xml_first(element); c != NULL; c = xml_next(c))
        if (xml_is(c, "gpu") || (xml_is(c, "pci") && is_gpu(c)) ||
            (depth < DEPTH_LIMIT && names_gpu(c, depth + 1)))
            return true;
    return false;
}

static ty_status check_copies(const importer *im, uint32_t fabric, uint32_t count, ty_error *error)
{
    if (fabric != NO_INDEX || count == 1)
        return TY_OK;
    return ty_fail(error, TY_EINVAL,
                   "%.160s: found a machine without NICs, expected some to link %u of them",
                   im->name, count);
}

static ty_status read(importer *im, ty_error *error)
{
    uint32_t count = im->options->hosts > 0 ? im->options->hosts : 1, fabric = NO_INDEX;
    xml_document *document = NULL;
    const xml_element *root;
    ty_status status;

    TY_CHECK(xml_parse(im->text, im->length, im->name, &document, error), status, cleanup);
    root = xml_root(document);
    if (!xml_is(root, "system")) {
        status = import_fail(im, error, xml_line(root), "found <%.40s>, expected <system>",
                             xml_name(root));
        goto cleanup;
    }
    if (!names_gpu(root, 0)) {
        status = import_catalogue_hosts(im, "names no GPU", error);
        goto cleanup;
    }
    for (uint32_t h = 0; h < count; h++) {
        TY_CHECK(add_machine(im, root, h, &fabric, error), status, cleanup);
        TY_CHECK(check_copies(im, fabric, count, error), status, cleanup);
    }
cleanup:
    xml_free(document);
    return status;
}

static bool probe(const char *text, size_t length)
{
    return xml_looks_like(text, length, "system");
}

const import_format import_nccl = {"nccl", "NCCL or RCCL topology XML", probe, read};

/* ---- Its namesake, which is no topology --------------------------------------------------- */

static bool probe_graph(const char *text, size_t length)
{
    return xml_looks_like(text, length, "graphs");
}

static ty_status refuse_graph(importer *im, ty_error *error)
{
    return ty_fail(error, TY_EUNSUPPORTED,
                   "%.160s: found an NCCL graph file (NCCL_GRAPH_FILE: rings and trees chosen), "
                   "expected a topology (NCCL_TOPO_DUMP_FILE)",
                   im->name);
}

const import_format import_nccl_graph = {"nccl-graph", "NCCL graph XML (refused)", probe_graph,
                                         refuse_graph};
