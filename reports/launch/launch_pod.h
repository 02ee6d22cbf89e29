/**
 * @file launch_pod.h
 * Parts of pods, which all jobs of Kubernetes have. Internal to reports/.
 */
#ifndef TY_REPORTS_LAUNCH_POD_H
#define TY_REPORTS_LAUNCH_POD_H

#include "launch.h"
#include "launch_yaml.h"

/** A ConfigMap holds at most 1 MiB, keys and all: Kubernetes documentation, "ConfigMaps". */
#define LAUNCH_LARGEST_CONFIG_BYTES ((size_t)1000 * 1000)

const char *ty_launch_image(const launch *l, char own[64]);
/** Image and resources that can be named. @return TY_EINVAL, TY_EUNSUPPORTED */
ty_status ty_launch_check_pod(const launch *l, const char *target, ty_error *error) TY_MUST_CHECK;
/** What stands before the documents: provenance, why variables are set, what is yet to be named.
 * @param is_of_worker pods run trainyard-worker, which Trainyard's own image has */
void ty_launch_pod_head(const launch *l, bool is_of_worker, ty_text *text);

/** A document of a kind, called as the job is, up to what comes behind its metadata. */
void ty_launch_open_resource(launch_yaml *y, const launch *l, const char *version,
                             const char *kind);
/** A ConfigMap: its data are put between the two. */
void ty_launch_open_config(launch_yaml *y, const launch *l);
void ty_launch_close_config(launch_yaml *y);

/** The one container of a pod, up to what comes behind its image. */
void ty_launch_open_container(launch_yaml *y, const char *name, const char *image);
void ty_launch_close_container(launch_yaml *y);
/** An entry of "env"; and the entries of ty_launch_environment. */
void ty_launch_pod_variable(launch_yaml *y, const char *name, const char *value);
void ty_launch_pod_environment(launch_yaml *y, const launch *l);
/** "resources" and, with RDMA, "securityContext". */
void ty_launch_pod_resources(launch_yaml *y, const launch *l);
/** Entries of "volumeMounts" and of "volumes": the latter of what the job's name names. */
void ty_launch_pod_mount(launch_yaml *y, const char *name, const char *path);
void ty_launch_pod_volume(launch_yaml *y, const launch *l, const char *name, const char *kind,
                          const char *key);
/** Memory that processes of a pod share: a container has 64 MiB of it by itself, NCCL and loaders
 * of data want more. */
void ty_launch_pod_shared_mount(launch_yaml *y);
void ty_launch_pod_shared_memory(launch_yaml *y);
/** The end of a pod whose container finds the plan's ConfigMap at /plan, behind its container's
 * "env": resources, mounts, and the volumes they are of. */
void ty_launch_pod_close(launch_yaml *y, const launch *l);

#endif
