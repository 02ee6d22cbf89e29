/* Custom devices of a description, @NAME{bf16=400e12,memory=48GiB,bandwidth=1.5TB/s,...}, or of a
 * file, @FILE with a slash or ".json" in its name. The schema is trainyard.device/1: "name",
 * "source", the members of a device type in a cluster file (bytes, flop/s, shares), "like", a
 * device of the catalogue, and "port", its link to the host. Missing values come from `like`, or
 * are defaults. */
#ifndef TY_DESCRIBE_DEVICE_H
#define TY_DESCRIBE_DEVICE_H

#include "catalogue.h"

/**
 * Makes a catalogue with the description's custom devices, and the description with only their
 * names. The copy shares all but the device lists with the original, which must outlive it;
 * own_devices_clear frees it, also after a failure.
 * @param line [out] free with ty_free
 */
ty_status own_devices(const char *text, const catalogue *c, catalogue *own, char **line,
                      ty_error *error) TY_MUST_CHECK;
void own_devices_clear(catalogue *own);

#endif
