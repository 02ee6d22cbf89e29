/* Informal cluster names. */
#ifndef TY_PLAIN_NAMES_H
#define TY_PLAIN_NAMES_H

#include "ty_base.h"

/**
 * Converts a number and a name of a host, device or cluster, in any order, to a description. "8x
 * A100" and "H100x12" are devices: full hosts of their usual type, and a partial one for the rest.
 * "p4d", "4 DGX-H100" and "2 nodes of 8 h100" are hosts.
 * @param line [out] free with ty_free; NULL: no such text
 * @return TY_EPARSE: a device without a usual host, or more devices per host than it has
 */
ty_status cluster_plain_line(const char *text, char **line, ty_error *error) TY_MUST_CHECK;

#endif
