/* Builds a cluster from entries of the catalogue: hosts, devices, links. Adds each type that is
 * used once. */
#ifndef TY_BUILD_H
#define TY_BUILD_H

#include "catalogue.h"

/** A line's own figures of a kind of link; 0: those of the catalogue. */
typedef struct link_words {
    double rate;
    ty_link_transport transport; /* with its latency and its share of the line rate */
    uint32_t flows;
    bool is_used; /* by a part of the line */
} link_words;

/** A line's own network of a host, instead of the catalogue's. */
typedef struct host_words {
    uint32_t network; /* kind of link; NO_INDEX: the catalogue's */
    uint32_t nics;    /* 0: all of the catalogue's host */
    bool has_p2p, is_staged;
} host_words;

typedef struct builder {
    ty_cluster *cluster;
    const catalogue *catalogue;
    /* Index in the cluster of each of the catalogue's entries, or NO_INDEX while unused: */
    uint32_t *links, *trunks, *device_types, *host_types;
    const link_words *words; /* [links of the catalogue] */
    host_words host;
    uint32_t devices_per_host; /* hosts have only this many devices, the first ones; 0: all */
} builder;

ty_status builder_open(builder *b, ty_cluster *cluster, const catalogue *c,
                       ty_error *error) TY_MUST_CHECK;
void builder_close(builder *b);

/** Adds a link of the catalogue's kind `link`. @param is_trunk with the rate between network
 * switches */
ty_status builder_link(builder *b, uint32_t from, uint32_t to, uint32_t link, bool is_trunk,
                       double lanes, ty_error *error) TY_MUST_CHECK;
/** Adds a link of a custom kind; the first one of a name defines it. */
ty_status builder_own_link(builder *b, uint32_t from, uint32_t to, const link_type *type,
                           double lanes, ty_error *error) TY_MUST_CHECK;
/** Adds a device of the catalogue's type. @param host vertex */
ty_status builder_device(builder *b, const char *name, uint32_t type, uint32_t host,
                         uint32_t *vertex, ty_error *error) TY_MUST_CHECK;
/**
 * Adds a host with its inside: `name`, "name/gpu-0" and so on.
 * @param first [out] vertex of the host itself; its vertex v is first + v
 */
ty_status builder_host(builder *b, uint32_t host, const char *name, uint32_t *first,
                       ty_error *error) TY_MUST_CHECK;
/** The same, with all its NICs linked to one switch. */
ty_status builder_host_below(builder *b, uint32_t host, const char *name, uint32_t network_switch,
                             ty_error *error) TY_MUST_CHECK;
/** The same in a domain: links of the host's own device switch go to `shared`, a device switch of
 * several hosts. NO_INDEX: its own. */
ty_status builder_host_in_domain(builder *b, uint32_t host, const char *name,
                                 uint32_t network_switch, uint32_t shared,
                                 ty_error *error) TY_MUST_CHECK;

/** Reads a one-line description, without "local" and files. */
ty_status cluster_describe(const char *text, ty_cluster **out, ty_error *error) TY_MUST_CHECK;
/** The same with an open catalogue. */
ty_status describe_with(const catalogue *catalogue, const char *text, ty_cluster **out,
                        ty_error *error) TY_MUST_CHECK;

/** Whether a line's word is one of a host's network: "eth10", "nics=2", "tcp". */
bool names_network(const catalogue *catalogue, const char *text);

uint32_t catalogue_host_count_of(const catalogue_host *host, ty_vertex_kind kind);

#endif
