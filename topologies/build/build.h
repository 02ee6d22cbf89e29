/* Building a cluster out of the catalogue's parts: hosts, devices, links. What is used once is
 * added once, whoever asks for it. */
#ifndef TY_BUILD_H
#define TY_BUILD_H

#include "catalogue.h"

typedef struct builder {
    ty_cluster *cluster;
    const catalogue *catalogue;
    /* Index in the cluster of each of the catalogue's entries, or NO_INDEX while unused: */
    uint32_t *links, *trunks, *device_types, *host_types;
    const double *rates; /* [links of the catalogue] bytes/s instead of its figure; 0: its figure */
    uint32_t devices_per_host; /* hosts have only their first devices, so many; 0: all of them */
} builder;

ty_status builder_open(builder *b, ty_cluster *cluster, const catalogue *c,
                       ty_error *error) TY_MUST_CHECK;
void builder_close(builder *b);

/** A link of the catalogue's kind `link`. @param is_trunk as between network switches */
ty_status builder_link(builder *b, uint32_t from, uint32_t to, uint32_t link, bool is_trunk,
                       double lanes, ty_error *error) TY_MUST_CHECK;
/** A link of a kind of one's own; the first of a name decides what it is. */
ty_status builder_own_link(builder *b, uint32_t from, uint32_t to, const link_type *type,
                           double lanes, ty_error *error) TY_MUST_CHECK;
/** A device of the catalogue's type. @param host vertex */
ty_status builder_device(builder *b, const char *name, uint32_t type, uint32_t host,
                         uint32_t *vertex, ty_error *error) TY_MUST_CHECK;
/**
 * The inside of a host: `name` and "name/gpu-0" and so on.
 * @param first [out] vertex of the host itself; that of the host's v-th is first + v
 */
ty_status builder_host(builder *b, uint32_t host, const char *name, uint32_t *first,
                       ty_error *error) TY_MUST_CHECK;
/** The same, with all its NICs linked to one switch. */
ty_status builder_host_below(builder *b, uint32_t host, const char *name, uint32_t network_switch,
                             ty_error *error) TY_MUST_CHECK;
/** The same in a domain: the host's own switch among devices is not drawn, its links go to
 *  `shared`, a device switch of several hosts. NO_INDEX: its own. */
ty_status builder_host_in_domain(builder *b, uint32_t host, const char *name,
                                 uint32_t network_switch, uint32_t shared,
                                 ty_error *error) TY_MUST_CHECK;

/** A one-line description, without "local" and files. */
ty_status cluster_describe(const char *text, ty_cluster **out, ty_error *error) TY_MUST_CHECK;
/** The same with a catalogue that is read already. */
ty_status describe_with(const catalogue *catalogue, const char *text, ty_cluster **out,
                        ty_error *error) TY_MUST_CHECK;

uint32_t catalogue_host_count_of(const catalogue_host *host, ty_vertex_kind kind);

#endif
