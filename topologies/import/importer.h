/* Common code of importers. Each importer is a file import_NAME.c with a probe and a reader, and a
 * row in import.c. A reader adds to `cluster`; importer.c creates it, finishes it and writes error
 * messages.
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
    uint32_t host, device; /* the options' host and device in the catalogue; NO_INDEX */
    ty_cluster *cluster;
    bool is_finished; /* the reader called import_finish itself */
    builder builder;
    ty_text notes;
} importer;

typedef struct import_format {
    const char *name, *title;
    bool (*probe)(const char *text, size_t length);
    ty_status (*read)(importer *im, ty_error *error);
} import_format;

/** ty_cluster_import_text, with an open catalogue. */
ty_status import_with(const catalogue *catalogue, const char *text, size_t length, const char *name,
                      const ty_cluster_import_options *options, ty_cluster **out,
                      ty_import_notes *notes, ty_error *error) TY_MUST_CHECK;

/** Whether a text is in one of the formats. */
bool import_knows(const char *text, size_t length);

/** Reads the file as YAML and passes its root, valid during the call. */
ty_status import_yml(importer *im,
                     ty_status (*read_root)(importer *im, yml_node root, ty_error *error),
                     ty_error *error) TY_MUST_CHECK;

/** Replaces the cluster by an empty one and clears the notes. */
ty_status import_start(importer *im, ty_error *error) TY_MUST_CHECK;
/** Checks and finishes the cluster, for readers that query it before they return. */
ty_status import_finish(importer *im, ty_error *error) TY_MUST_CHECK;

/** Adds a line to the notes: an assumption, or an ignored part. */
void import_note(importer *im, const char *format, ...) TY_PRINTF(2, 3);
/** TY_EPARSE: "file:line: found ..., expected ...". */
ty_status import_fail(const importer *im, ty_error *error, unsigned line, const char *format, ...)
    TY_PRINTF(4, 5);
/** TY_EINVAL if options.host (or options.device) is needed and missing. @param what "names no
 *  devices" */
ty_status import_need_host(const importer *im, const char *what, ty_error *error) TY_MUST_CHECK;
ty_status import_need_device(const importer *im, const char *what, ty_error *error) TY_MUST_CHECK;
/** Adds `count` hosts of the options around one switch, for files without the inside of hosts, with
 * a note. @param what "names no GPU" */
ty_status import_catalogue_hosts(importer *im, const char *what, ty_error *error) TY_MUST_CHECK;
/** The device of a file: options.device, else that of options.host, else NO_INDEX. */
uint32_t import_device(const importer *im);

/**
 * A PCIe link by its rate per lane and its lanes: the generation as the catalogue's kind, narrower
 * links as a fraction. A missing rate is generation 3, missing lanes are 16, as in NCCL.
 */
typedef struct import_pcie {
    uint32_t generation; /* 1 to 6 */
    double lanes;        /* lanes over 16 */
} import_pcie;
import_pcie import_pcie_of(const char *speed, const char *width);
ty_status import_pcie_link(importer *im, uint32_t from, uint32_t to, import_pcie link,
                           bool is_bridge, ty_error *error) TY_MUST_CHECK;
/** Sets the link of a NIC to a network by its rate in bit/s: the catalogue's network of that rate,
 * else a new kind. @param is_infiniband else Ethernet (RoCE latencies) */
ty_status import_network_link(importer *im, uint32_t nic, uint32_t network_switch,
                              double bits_per_s, bool is_infiniband, ty_error *error) TY_MUST_CHECK;

/** The link between processors, rated as in NCCL. @param text as in NCCL's XML */
uint32_t import_smp_link(const importer *im, const char *arch, const char *vendor,
                         const char *family, const char *model);

/** Iterates over the lines of a text, without their ends. False at the end. */
typedef struct import_lines {
    const char *at, *end;
    unsigned number; /* of the last line, from 1 */
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
/** Files of other simulators that are no clusters: detected, and refused with a reason. */
extern const import_format import_foreign;

#endif
