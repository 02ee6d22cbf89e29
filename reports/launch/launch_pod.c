/* What the jobs of Kubernetes have in common. Sources: Kubernetes API reference (ConfigMap,
 * PersistentVolumeClaim, Container, Volume), "Share process memory" by an emptyDir of memory,
 * NVIDIA network operator's example of a pod with RDMA (resource and IPC_LOCK). */
#include "launch_pod.h"
#include "ty_collective_model.h"
#include "ty_quote.h"

#include <stdio.h>
#include <string.h>

/* As a shared device plugin of NVIDIA's network operator names adapters in its examples. */
#define USUAL_RDMA "rdma/rdma_shared_device_a"

const char *ty_launch_image(const launch *l, char own[64])
{
    if (l->input->image != NULL)
        return l->input->image;
    snprintf(own, 64, "trainyard:%.40s", l->input->version);
    return own;
}

/* Names of resources: a domain, a slash, a name (Kubernetes, "Extended resources"). */
static bool is_resource(const char *name)
{
    const char *slash = strchr(name, '/');

    return slash != NULL && slash > name && slash[1] != '\0' && strchr(slash + 1, '/') == NULL &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/") ==
               strlen(name);
}

ty_status ty_launch_check_pod(const launch *l, const char *target, ty_error *error)
{
    const char *image = l->input->image, *rdma = l->input->rdma;

    if (rdma != NULL && strcmp(rdma, "none") != 0 && !is_resource(rdma))
        return ty_fail(
            error, TY_EINVAL,
            "--rdma: found '%.80s', expected a resource of Kubernetes, such as " USUAL_RDMA
            ", or none",
            rdma);
    if (image == NULL && l->input->version == NULL)
        return ty_fail(error, TY_EINVAL, "--to %s needs an image", target);
    if (image != NULL && (image[0] == '\0' || !ty_is_printable(image) ||
                          strpbrk(image, " \t\r\n#'\"{}[],&*") != NULL))
        return ty_fail(error, TY_EINVAL, "--image: found '%.80s', expected the name of an image",
                       image);
    if (l->has_accelerators && ty_launch_backend(l->plan, l->input->cluster) == NULL)
        return ty_launch_refuse(
            error, target, "it asks for NVIDIA's GPUs, and the plan's devices are %.60s",
            ty_cluster_device_type(l->input->cluster, ty_plan_device_of_rank(l->plan, 0))->name);
    return TY_OK;
}

void ty_launch_pod_head(const launch *l, bool is_of_worker, ty_text *text)
{
    launch_variable variables[LAUNCH_MOST_VARIABLES];
    uint32_t count = ty_launch_environment(l, variables);

    ty_launch_comments(l, "# ", text);
    for (uint32_t v = 0; v < count; v++)
        ty_text_addf(text, "# %s: %s\n", variables[v].name, variables[v].why);
    if (ty_launch_has_rdma(l))
        ty_text_add(text, "# rdma/...: adapters as the cluster's device plugin names them "
                          "(export --rdma NAME, or none)\n");
    if (l->input->image == NULL && !is_of_worker)
        ty_text_add(text, "# image: Trainyard's own has no training program but its worker: name "
                          "yours (export --image NAME)\n");
}

void ty_launch_open_resource(launch_yaml *y, const launch *l, const char *version, const char *kind)
{
    ty_launch_yaml_open_document(y);
    ty_launch_yaml_word(y, "apiVersion", version);
    ty_launch_yaml_word(y, "kind", kind);
    ty_launch_yaml_open(y, "metadata", '{');
    ty_launch_yaml_string(y, "name", l->name);
    ty_launch_yaml_close(y, '}');
}

void ty_launch_open_config(launch_yaml *y, const launch *l)
{
    ty_launch_open_resource(y, l, "v1", "ConfigMap");
    ty_launch_yaml_open(y, "data", '{');
}

void ty_launch_close_config(launch_yaml *y)
{
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close_document(y);
}

void ty_launch_pod_variable(launch_yaml *y, const char *name, const char *value)
{
    ty_launch_yaml_open(y, NULL, '{');
    ty_launch_yaml_string(y, "name", name);
    ty_launch_yaml_string(y, "value", value);
    ty_launch_yaml_close(y, '}');
}

void ty_launch_pod_environment(launch_yaml *y, const launch *l)
{
    launch_variable variables[LAUNCH_MOST_VARIABLES];
    uint32_t count = ty_launch_environment(l, variables);

    for (uint32_t v = 0; v < count; v++)
        ty_launch_pod_variable(y, variables[v].name, variables[v].value);
}

/* Memory that is to be pinned for adapters is not bounded by the usual limit. */
void ty_launch_pod_resources(launch_yaml *y, const launch *l)
{
    const bool has_rdma = ty_launch_has_rdma(l);

    ty_launch_yaml_open(y, "resources", '{');
    ty_launch_yaml_open(y, "limits", '{');
    ty_launch_yaml_number(y, l->has_accelerators ? "nvidia.com/gpu" : "cpu", l->per_host);
    if (has_rdma)
        ty_launch_yaml_number(y, l->input->rdma != NULL ? l->input->rdma : USUAL_RDMA, 1);
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, '}');
    if (!has_rdma)
        return;
    ty_launch_yaml_open(y, "securityContext", '{');
    ty_launch_yaml_open(y, "capabilities", '{');
    ty_launch_yaml_open(y, "add", '[');
    ty_launch_yaml_word(y, NULL, "IPC_LOCK");
    ty_launch_yaml_close(y, ']');
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, '}');
}

void ty_launch_pod_mount(launch_yaml *y, const char *name, const char *path)
{
    ty_launch_yaml_open(y, NULL, '{');
    ty_launch_yaml_word(y, "name", name);
    ty_launch_yaml_word(y, "mountPath", path);
    ty_launch_yaml_close(y, '}');
}

void ty_launch_pod_volume(launch_yaml *y, const launch *l, const char *name, const char *kind,
                          const char *key)
{
    ty_launch_yaml_open(y, NULL, '{');
    ty_launch_yaml_word(y, "name", name);
    ty_launch_yaml_open(y, kind, '{');
    ty_launch_yaml_string(y, key, l->name);
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, '}');
}

void ty_launch_pod_shared_memory(launch_yaml *y)
{
    ty_launch_yaml_open(y, NULL, '{');
    ty_launch_yaml_word(y, "name", "shared-memory");
    ty_launch_yaml_open(y, "emptyDir", '{');
    ty_launch_yaml_word(y, "medium", "Memory");
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, '}');
}

void ty_launch_pod_shared_mount(launch_yaml *y)
{
    ty_launch_pod_mount(y, "shared-memory", "/dev/shm");
}

void ty_launch_open_container(launch_yaml *y, const char *name, const char *image)
{
    ty_launch_yaml_open(y, "containers", '[');
    ty_launch_yaml_open(y, NULL, '{');
    ty_launch_yaml_word(y, "name", name);
    ty_launch_yaml_string(y, "image", image);
}

void ty_launch_close_container(launch_yaml *y)
{
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_close(y, ']');
}

void ty_launch_pod_close(launch_yaml *y, const launch *l)
{
    ty_launch_pod_resources(y, l);
    ty_launch_yaml_open(y, "volumeMounts", '[');
    ty_launch_pod_shared_mount(y);
    ty_launch_pod_mount(y, "plan", "/plan");
    ty_launch_yaml_close(y, ']');
    ty_launch_close_container(y);
    ty_launch_yaml_open(y, "volumes", '[');
    ty_launch_pod_shared_memory(y);
    ty_launch_pod_volume(y, l, "plan", "configMap", "name");
    ty_launch_yaml_close(y, ']');
}
