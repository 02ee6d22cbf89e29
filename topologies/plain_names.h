/* What people type for a cluster. */
#ifndef TY_PLAIN_NAMES_H
#define TY_PLAIN_NAMES_H

#include "ty_status.h"

/**
 * The description that is meant by a number and a name of a host or a device, however they are
 * written: "8x A100" and "H100x8" are devices, in as many of their usual hosts as hold them; "p4d"
 * and "4 DGX-H100" are hosts.
 * @param line [out] free with ty_free; NULL: it is nothing of that kind
 * @return TY_EPARSE: devices that do not fill hosts
 */
ty_status cluster_plain_line(const char *text, char **line, ty_error *error) TY_MUST_CHECK;

#endif
