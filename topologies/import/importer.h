/* What the importers share. Each is a file import_NAME.c with a probe and a reader, and a row in
 * import.c. A reader adds to `cluster`; importer.c makes it, finishes it and words what is wrong.
 */
#ifndef TY_IMPORTER_H
#define TY_IMPORTER_H

#include "build.h"
#include "yml.h"

typedef struct importer {
    const char *name; /* of the file, for messages */
    const char *text; /* terminated, `length` bytes before */
    size_t length;
    const ty_cluster_import_options *options;
    const catalogue *catalogue;
    uint32_t host, device; /* what the options name, of the catalogue; NO_INDEX */
    ty_cluster *cluster;
    bool is_finished; /* by the reader itself: import_finish */
    builder builder;
    ty_text notes;
} importer;

typedef struct import_format {
    const char *name, *title;
    bool (*probe)(const char *text, size_t length);
    ty_status (*read)(importer *im, ty_error *error);
} import_format;

/** ty_cluster_import_text, with a catalogue that is read already. */
ty_status import_with(const catalogue *catalogue, const char *text, size_t length, const char *name,
                      const ty_cluster_import_options *options, ty_cluster **out,
                      ty_import_notes *notes, ty_error *error) TY_MUST_CHECK;

/** Whether a text is in one of the formats. */
bool import_knows(const char *text, size_t length);

/** Reads the file as YAML and hands on its root, which is valid until then. */
ty_status import_yml(importer *im,
                     ty_status (*read_root)(importer *im, yml_node root, ty_error *error),
                     ty_error *error) TY_MUST_CHECK;

/** An empty cluster, in place of the one that is there; what was noted is forgotten. */
ty_status import_start(importer *im, ty_error *error) TY_MUST_CHECK;
/** Checks and finishes the cluster, for readers that ask it something before they return. */
ty_status import_finish(importer *im, ty_error *error) TY_MUST_CHECK;

/** A line of the notes: what was assumed, or left out. */
void import_note(importer *im, const char *format, ...) TY_PRINTF(2, 3);
/** TY_EPARSE: "file:line: found ..., expected ...". */
ty_status import_fail(const importer *im, ty_error *error, unsigned line, const char *format, ...)
    TY_PRINTF(4, 5);
/** TY_EINVAL where options.host (or options.device) is needed and missing. @param what "names no
 *  devices" */
ty_status import_need_host(const importer *im, const char *what, ty_error *error) TY_MUST_CHECK;
ty_status import_need_device(const importer *im, const char *what, ty_error *error) TY_MUST_CHECK;
/** So many hosts of the options around one switch, for files that say nothing of the inside; notes
 *  it. @param what "names no GPU" */
ty_status import_catalogue_hosts(importer *im, const char *what, ty_error *error) TY_MUST_CHECK;
/** The device a file is about: options.device, else that of options.host, else NO_INDEX. */
uint32_t import_device(const importer *im);

/**
 * A PCIe link by its rate per lane and its lanes: the generation as the catalogue's kind, narrower
 * links as a fraction. A missing rate is generation 3, missing lanes are 16, as NCCL reads them.
 */
typedef struct import_pcie {
    uint32_t generation; /* 1 to 6 */
    double lanes;        /* of 16 */
} import_pcie;
import_pcie import_pcie_of(const char *speed, const char *width);
ty_status import_pcie_link(importer *im, uint32_t from, uint32_t to, import_pcie link,
                           bool is_bridge, ty_error *error) TY_MUST_CHECK;
/** The link of a NIC to a network of so many bit/s. Rates of the catalogue's networks become those;
 *  others a kind of their own. @param is_infiniband else Ethernet (RoCE latencies) */
ty_status import_network_link(importer *im, uint32_t nic, uint32_t network_switch,
                              double bits_per_s, bool is_infiniband, ty_error *error) TY_MUST_CHECK;

/** The link between processors as NCCL rates it. @param text as in NCCL's XML */
uint32_t import_smp_link(const importer *im, const char *arch, const char *vendor,
                         const char *family, const char *model);

/** Adds `next` line (without its end) of a text to walk through. false at the end. */
typedef struct import_lines {
    const char *at, *end;
    unsigned number; /* of the line last taken, from 1 */
    const char *line;
    size_t length;
} import_lines;
import_lines import_lines_of(const char *text, size_t length);
bool import_next_line(import_lines *lines);

extern const import_format import_own;
extern const import_format import_nccl, import_nccl_graph, import_smi, import_slurm;
extern const import_format import_slurm_yaml;
extern const import_format import_hwloc, import_ibnet;
extern const import_format import_simgrid;
/** Files of other simulators that are not clusters: told apart, and refused with a reason. */
extern const import_format import_foreign;

#endif
