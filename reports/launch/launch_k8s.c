/* Kubernetes, by Kubeflow's operators of before: an MPIJob (kubeflow.org/v2beta1) around
 * trainyard-worker, a PyTorchJob (kubeflow.org/v1) around a training script. Source: the resource
 * definitions in kubeflow/mpi-operator manifests/base and kubeflow/training-operator
 * manifests/base/crds. */
#include "launch_pod.h"

#include <stdio.h>
#include <string.h>

/* Where the run file goes; every worker writes there. */
static void write_claim(launch_yaml *y, const launch *l)
{
    ty_launch_open_resource(y, l, "v1", "PersistentVolumeClaim");
    ty_launch_yaml_open(y, "spec", '{');
    ty_launch_yaml_open(y, "accessModes", '[');
    ty_launch_yaml_word(y, NULL, "ReadWriteMany");
    ty_launch_yaml_close(y, ']');
    ty_launch_yaml_open(y, "resources", '{');
    ty_launch_yaml_open(y, "requests", '{');
    ty_launch_yaml_word(y, "storage", "1Gi");
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close_document(y);
}

static void write_config(launch_yaml *y, const launch *l, const char *key, const char *content)
{
    ty_launch_open_config(y, l);
    ty_launch_yaml_lines(y, key, content);
    ty_launch_close_config(y);
}

/* A kind of replica, up to the specification of its pod. */
static void open_replicas(launch_yaml *y, const char *kind, uint32_t count, const char *restarts)
{
    ty_launch_yaml_open(y, kind, '{');
    ty_launch_yaml_number(y, "replicas", count);
    if (restarts != NULL)
        ty_launch_yaml_word(y, "restartPolicy", restarts);
    ty_launch_yaml_open(y, "template", '{');
    ty_launch_yaml_open(y, "spec", '{');
}

static void close_replicas(launch_yaml *y)
{
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, '}');
}

/* ---- MPIJob ------------------------------------------------------------------------------ */

static void write_launcher(launch_yaml *y, const launch *l, bool is_in_config)
{
    const char *job = is_in_config ? "/job/job.json" : "/output/job.json";
    launch_variable variables[LAUNCH_MOST_VARIABLES];
    uint32_t count = ty_launch_environment(l, variables);
    char own[64], line[160];

    open_replicas(y, "Launcher", 1, NULL);
    ty_launch_yaml_word(y, "restartPolicy", "Never");
    ty_launch_open_container(y, "launcher", ty_launch_image(l, own));
    ty_launch_yaml_open(y, "command", '[');
    /* Ranks refuse who does not prove to have this secret. */
    ty_launch_yaml_string(y, NULL, "sh");
    ty_launch_yaml_string(y, NULL, "-c");
    ty_launch_yaml_string(y, NULL, LAUNCH_SECRET "exec \"$@\"");
    ty_launch_yaml_string(y, NULL, "sh");
    snprintf(line, sizeof line, "%u", l->process_count);
    ty_launch_yaml_string(y, NULL, "mpirun");
    ty_launch_yaml_string(y, NULL, "-n");
    ty_launch_yaml_string(y, NULL, line);
    for (const char *const *w = (const char *const[]){"--map-by", "slot", "--bind-to", "none",
                                                      "--wdir", "/output", NULL};
         *w != NULL; w++)
        ty_launch_yaml_string(y, NULL, *w);
    for (uint32_t v = 0; v < count; v++) {
        snprintf(line, sizeof line, "%s=%s", variables[v].name, variables[v].value);
        ty_launch_yaml_string(y, NULL, "-x");
        ty_launch_yaml_string(y, NULL, line);
    }
    ty_launch_yaml_string(y, NULL, "-x");
    ty_launch_yaml_string(y, NULL, TY_SECRET_VARIABLE);
    if (l->has_accelerators) {
        /* A pod's devices are numbered from 0, and its processes have them in order. */
        snprintf(line, sizeof line,
                 "export CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK; exec trainyard-worker "
                 "%s",
                 job);
        ty_launch_yaml_string(y, NULL, "sh");
        ty_launch_yaml_string(y, NULL, "-c");
        ty_launch_yaml_string(y, NULL, line);
    } else {
        ty_launch_yaml_string(y, NULL, "trainyard-worker");
        ty_launch_yaml_string(y, NULL, job);
    }
    ty_launch_yaml_close(y, ']');
    ty_launch_close_container(y);
    close_replicas(y);
}

static void write_workers(launch_yaml *y, const launch *l, bool is_in_config)
{
    char own[64];

    open_replicas(y, "Worker", l->host_count, NULL);
    ty_launch_open_container(y, "worker", ty_launch_image(l, own));
    ty_launch_yaml_open(y, "env", '[');
    ty_launch_pod_environment(y, l);
    ty_launch_yaml_close(y, ']');
    ty_launch_pod_resources(y, l);
    ty_launch_yaml_open(y, "volumeMounts", '[');
    ty_launch_pod_shared_mount(y);
    ty_launch_pod_mount(y, "output", "/output");
    if (is_in_config)
        ty_launch_pod_mount(y, "job", "/job");
    ty_launch_yaml_close(y, ']');
    ty_launch_close_container(y);
    ty_launch_yaml_open(y, "volumes", '[');
    ty_launch_pod_shared_memory(y);
    ty_launch_pod_volume(y, l, "output", "persistentVolumeClaim", "claimName");
    if (is_in_config)
        ty_launch_pod_volume(y, l, "job", "configMap", "name");
    ty_launch_yaml_close(y, ']');
    close_replicas(y);
}

static void write_mpijob(launch_yaml *y, const launch *l, bool is_in_config)
{
    if (is_in_config)
        write_config(y, l, "job.json", l->input->job);
    write_claim(y, l);
    ty_launch_open_resource(y, l, "kubeflow.org/v2beta1", "MPIJob");
    ty_launch_yaml_open(y, "spec", '{');
    ty_launch_yaml_number(y, "slotsPerWorker", l->per_host);
    ty_launch_yaml_open(y, "runPolicy", '{');
    ty_launch_yaml_word(y, "cleanPodPolicy", "Running");
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_open(y, "mpiReplicaSpecs", '{');
    write_launcher(y, l, is_in_config);
    write_workers(y, l, is_in_config);
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close_document(y);
}

ty_status ty_launch_mpijob(launch *l, ty_error *error)
{
    ty_status status = TY_OK;
    bool is_in_config = strlen(l->input->job) <= LAUNCH_LARGEST_CONFIG_BYTES;
    launch_yaml y;
    ty_text text = {0};

    TY_CHECK(ty_launch_check_blocks(l, "k8s-mpijob", error), status, cleanup);
    TY_CHECK(ty_launch_check_pod(l, "k8s-mpijob", error), status, cleanup);
    ty_launch_pod_head(l, true, &text);
    if (!is_in_config)
        ty_text_add(&text, "# The job file is too large for a ConfigMap: copy job.json into the "
                           "volume below.\n");
    ty_launch_yaml_start(&y, &text);
    write_mpijob(&y, l, is_in_config);
    TY_CHECK(ty_launch_yaml_end(&y, error), status, cleanup);
    TY_CHECK(ty_launch_add(l, "mpijob.yaml", &text, false, error), status, cleanup);
    if (!is_in_config)
        TY_CHECK(ty_launch_add_job(l, error), status, cleanup);
    status = ty_launch_next(l, error, "kubectl apply -f mpijob.yaml");

cleanup:
    ty_text_clear(&text);
    return status;
}

/* ---- PyTorchJob -------------------------------------------------------------------------- */

static void write_replicas(launch_yaml *y, const launch *l, const char *kind, uint32_t count)
{
    char own[64];

    open_replicas(y, kind, count, "OnFailure");
    ty_launch_open_container(y, "pytorch", ty_launch_image(l, own));
    /* The operator gives torchrun its PET_* variables: hosts, processes, rendezvous. */
    ty_launch_yaml_open(y, "command", '[');
    ty_launch_yaml_string(y, NULL, "torchrun");
    ty_launch_yaml_string(y, NULL, ty_launch_script(l));
    ty_launch_yaml_close(y, ']');
    ty_launch_yaml_open(y, "env", '[');
    ty_launch_pod_environment(y, l);
    ty_launch_pod_variable(y, "PYTHONPATH", "/plan");
    ty_launch_yaml_close(y, ']');
    ty_launch_pod_close(y, l);
    close_replicas(y);
}

static void write_pytorchjob(launch_yaml *y, const launch *l, const char *settings)
{
    char count[16];

    snprintf(count, sizeof count, "%u", l->per_host);
    write_config(y, l, "trainyard_plan.py", settings);
    ty_launch_open_resource(y, l, "kubeflow.org/v1", "PyTorchJob");
    ty_launch_yaml_open(y, "spec", '{');
    ty_launch_yaml_string(y, "nprocPerNode", count);
    ty_launch_yaml_open(y, "runPolicy", '{');
    ty_launch_yaml_word(y, "cleanPodPolicy", "None");
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_open(y, "pytorchReplicaSpecs", '{');
    write_replicas(y, l, "Master", 1);
    if (l->host_count > 1)
        write_replicas(y, l, "Worker", l->host_count - 1);
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close_document(y);
}

ty_status ty_launch_pytorchjob(launch *l, ty_error *error)
{
    ty_status status = TY_OK;
    launch_yaml y;
    ty_text text = {0}, settings = {0};

    TY_CHECK(ty_launch_check_data_parallel(l, "k8s-pytorchjob", 3, error), status, cleanup);
    TY_CHECK(ty_launch_check_pod(l, "k8s-pytorchjob", error), status, cleanup);
    TY_CHECK(ty_launch_settings(l, LAUNCH_PYTORCH, &settings, error), status, cleanup);
    ty_launch_pod_head(l, false, &text);
    ty_launch_yaml_start(&y, &text);
    write_pytorchjob(&y, l, settings.data);
    TY_CHECK(ty_launch_yaml_end(&y, error), status, cleanup);
    TY_CHECK(ty_launch_add(l, "pytorchjob.yaml", &text, false, error), status, cleanup);
    status = ty_launch_next(l, error, "kubectl apply -f pytorchjob.yaml");

cleanup:
    ty_text_clear(&settings);
    ty_text_clear(&text);
    return status;
}
