/* Devices that a description makes up, @NAME{bf16=400e12,memory=48GiB,bandwidth=1.5TB/s,...}, or
 * that a file has: @FILE with a slash or ".json" in its name, of schema trainyard.device/1: "name",
 * "source", what a cluster's file says of a device type (bytes, flop/s, shares), "like" a device of
 * the catalogue and "port", its link to the host; of what is not said holds what `like` has, or the
 * usual. */
#ifndef TY_DESCRIBE_DEVICE_H
#define TY_DESCRIBE_DEVICE_H

#include "catalogue.h"

/**
 * A catalogue that has the description's own devices too, and the description with their names
 * alone. The copy shares everything but the lists of devices with the first and lives no
 * longer; own_devices_clear frees it, also after a failure.
 * @param line [out] free with ty_free
 */
ty_status own_devices(const char *text, const catalogue *c, catalogue *own, char **line,
                      ty_error *error) TY_MUST_CHECK;
void own_devices_clear(catalogue *own);

#endif
