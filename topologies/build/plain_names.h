/* What people type for a cluster. */
#ifndef TY_PLAIN_NAMES_H
#define TY_PLAIN_NAMES_H

#include "ty_base.h"

/**
 * The description that is meant by a number and a name of a host, a device or a cluster, however
 * they are written. "8x A100" and "H100x12" are devices: as many of their usual hosts as they fill,
 * and a part of one for the rest. "p4d", "4 DGX-H100" and "2 nodes of 8 h100" are hosts.
 * @param line [out] free with ty_free; NULL: it is nothing of that kind
 * @return TY_EPARSE: a device that has no usual host, or more devices in a host than it has
 */
ty_status cluster_plain_line(const char *text, char **line, ty_error *error) TY_MUST_CHECK;

#endif
