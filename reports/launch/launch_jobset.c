/* Kubernetes around a launch.sh: a JobSet (jobset.x-k8s.io/v1alpha2), or a TrainJob of Kubeflow's
 * Trainer with a runtime of its own (trainer.kubeflow.org/v1alpha1). A pod for every host; the
 * files lie in a ConfigMap and are copied into the image's working folder, where the training
 * program is. Sources: kubernetes-sigs/jobset api/jobset/v1alpha2 and its concepts (a pod is called
 * SET-JOB-0-INDEX.SET), kubeflow/trainer manifests/base/crds and its torch plugin (PET_ variables;
 * the container called "node" and the label of the step). */
#include "launch_pod.h"

#include <stdio.h>
#include <string.h>

#define RENDEZVOUS_PORT "29500"

static ty_status check_size(const launch *l, const char *target, ty_error *error)
{
    size_t bytes = 0;

    for (uint32_t f = 0; f < l->files->count; f++)
        bytes += l->files->files[f].length;
    return bytes <= LAUNCH_LARGEST_CONFIG_BYTES
               ? TY_OK
               : ty_launch_refuse(error, target,
                                  "a ConfigMap holds 1 MiB, and the files have %zu bytes", bytes);
}

static void write_files(launch_yaml *y, const launch *l)
{
    ty_launch_open_config(y, l);
    for (uint32_t f = 0; f < l->files->count; f++)
        ty_launch_yaml_lines(y, l->files->files[f].name, l->files->files[f].bytes);
    ty_launch_close_config(y);
}

/* The specification of the pod of a host. @param start line of a shell behind the copying */
static void write_pod(launch_yaml *y, const launch *l, const char *start)
{
    char own[64], devices[512] = "", line[400];
    size_t at = 0;

    ty_launch_yaml_open(y, "spec", '{');
    ty_launch_yaml_word(y, "restartPolicy", "Never");
    ty_launch_open_container(y, "node", ty_launch_image(l, own));
    ty_launch_yaml_open(y, "command", '[');
    ty_launch_yaml_string(y, NULL, "sh");
    ty_launch_yaml_string(y, NULL, "-c");
    snprintf(line, sizeof line, "cp /plan/* . && %s exec sh ./launch.sh \"$@\"", start);
    ty_launch_yaml_string(y, NULL, line);
    ty_launch_yaml_string(y, NULL, "launch.sh");
    ty_launch_yaml_close(y, ']');
    ty_launch_yaml_open(y, "env", '[');
    ty_launch_pod_environment(y, l);
    ty_launch_pod_variable(y, "PYTHONPATH", "/plan");
    /* A pod's devices are numbered from 0. */
    for (uint32_t d = 0; d < l->per_host && at < sizeof devices - 8; d++)
        at += (size_t)snprintf(devices + at, sizeof devices - at, "%s%u", d > 0 ? "," : "", d);
    if (l->has_accelerators)
        ty_launch_pod_variable(y, "CUDA_VISIBLE_DEVICES", devices);
    ty_launch_yaml_close(y, ']');
    ty_launch_pod_close(y, l);
    ty_launch_yaml_close(y, '}');
}

/* ---- JobSet ------------------------------------------------------------------------------ */

static void write_jobset(launch_yaml *y, const launch *l)
{
    char start[300];

    snprintf(start, sizeof start,
             "NODE_RANK=$JOB_COMPLETION_INDEX MASTER_ADDR=%s-node-0-0.%s "
             "MASTER_PORT=" RENDEZVOUS_PORT,
             l->name, l->name);
    ty_launch_open_resource(y, l, "jobset.x-k8s.io/v1alpha2", "JobSet");
    ty_launch_yaml_open(y, "spec", '{');
    ty_launch_yaml_open(y, "network", '{');
    ty_launch_yaml_word(y, "enableDNSHostnames", "true");
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_open(y, "failurePolicy", '{');
    ty_launch_yaml_number(y, "maxRestarts", 0);
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_open(y, "replicatedJobs", '[');
    ty_launch_yaml_open(y, NULL, '{');
    ty_launch_yaml_word(y, "name", "node");
    ty_launch_yaml_number(y, "replicas", 1);
    ty_launch_yaml_open(y, "template", '{');
    ty_launch_yaml_open(y, "spec", '{');
    ty_launch_yaml_number(y, "parallelism", l->host_count);
    ty_launch_yaml_number(y, "completions", l->host_count);
    ty_launch_yaml_word(y, "completionMode", "Indexed");
    ty_launch_yaml_number(y, "backoffLimit", 0);
    ty_launch_yaml_open(y, "template", '{');
    write_pod(y, l, start);
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, ']');
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close_document(y);
}

/* ---- TrainJob ---------------------------------------------------------------------------- */

static void write_runtime(launch_yaml *y, const launch *l)
{
    ty_launch_open_resource(y, l, "trainer.kubeflow.org/v1alpha1", "TrainingRuntime");
    ty_launch_yaml_open(y, "spec", '{');
    ty_launch_yaml_open(y, "mlPolicy", '{');
    ty_launch_yaml_number(y, "numNodes", l->host_count);
    ty_launch_yaml_open(y, "torch", '{');
    ty_launch_yaml_number(y, "numProcPerNode", l->per_host);
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_open(y, "template", '{');
    ty_launch_yaml_open(y, "spec", '{');
    ty_launch_yaml_open(y, "replicatedJobs", '[');
    ty_launch_yaml_open(y, NULL, '{');
    ty_launch_yaml_word(y, "name", "node");
    ty_launch_yaml_open(y, "template", '{');
    ty_launch_yaml_open(y, "metadata", '{');
    ty_launch_yaml_open(y, "labels", '{');
    ty_launch_yaml_word(y, "trainer.kubeflow.org/trainjob-ancestor-step", "trainer");
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_open(y, "spec", '{');
    ty_launch_yaml_open(y, "template", '{');
    write_pod(y, l,
              "NODE_RANK=$PET_NODE_RANK MASTER_ADDR=$PET_MASTER_ADDR "
              "MASTER_PORT=$PET_MASTER_PORT");
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, ']');
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close_document(y);
}

static void write_trainjob(launch_yaml *y, const launch *l)
{
    write_runtime(y, l);
    ty_launch_open_resource(y, l, "trainer.kubeflow.org/v1alpha1", "TrainJob");
    ty_launch_yaml_open(y, "spec", '{');
    ty_launch_yaml_open(y, "runtimeRef", '{');
    ty_launch_yaml_word(y, "apiGroup", "trainer.kubeflow.org");
    ty_launch_yaml_word(y, "kind", "TrainingRuntime");
    ty_launch_yaml_string(y, "name", l->name);
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_open(y, "trainer", '{');
    ty_launch_yaml_number(y, "numNodes", l->host_count);
    ty_launch_yaml_number(y, "numProcPerNode", l->per_host);
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close_document(y);
}

/* ---- Both -------------------------------------------------------------------------------- */

static ty_status add(launch *l, const char *target, const char *file,
                     void (*write)(launch_yaml *y, const launch *l), ty_error *error)
{
    ty_status status = TY_OK;
    launch_yaml y;
    ty_text text = {0};

    TY_CHECK(ty_launch_check_pod(l, target, error), status, cleanup);
    TY_CHECK(check_size(l, target, error), status, cleanup);
    ty_launch_pod_head(l, false, &text);
    ty_launch_yaml_start(&y, &text);
    write_files(&y, l);
    write(&y, l);
    TY_CHECK(ty_launch_yaml_end(&y, error), status, cleanup);
    TY_CHECK(ty_launch_add(l, file, &text, false, error), status, cleanup);
    status = ty_launch_next(l, error, "kubectl apply -f %s", file);

cleanup:
    ty_text_clear(&text);
    return status;
}

ty_status ty_launch_on_jobset(launch *l, ty_error *error)
{
    return add(l, "k8s-jobset", "jobset.yaml", write_jobset, error);
}

ty_status ty_launch_on_trainjob(launch *l, ty_error *error)
{
    return add(l, "k8s-trainjob", "trainjob.yaml", write_trainjob, error);
}
