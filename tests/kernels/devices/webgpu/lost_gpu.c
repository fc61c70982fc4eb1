/* A Vulkan driver that is SwiftShader until it has taken LOSE_AFTER submissions, and then is lost. */

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define DEVICE_LOST (-4)

typedef void (*Function)(void);
typedef Function (*Getter)(void *owner, const char *name);
typedef int (*Submit)(void *queue, unsigned count, const void *submits, void *fence);

static void *driver;
static Getter device_function;
static Submit real_submit;
static int submitted;

static void *symbol(const char *name) {
  if (!driver) driver = dlopen(getenv("LOSE_DRIVER"), RTLD_NOW);
  return dlsym(driver, name);
}

static int submit(void *queue, unsigned count, const void *submits, void *fence) {
  if (submitted++ >= atoi(getenv("LOSE_AFTER"))) return DEVICE_LOST;
  return real_submit(queue, count, submits, fence);
}

static Function replaced(const char *name, Function function) {
  if (!function || strcmp(name, "vkQueueSubmit")) return function;
  real_submit = (Submit)function;
  return (Function)submit;
}

static Function get_device_function(void *device, const char *name) {
  return replaced(name, device_function(device, name));
}

Function vk_icdGetInstanceProcAddr(void *instance, const char *name) {
  Function function = ((Getter)symbol("vk_icdGetInstanceProcAddr"))(instance, name);
  if (!function || strcmp(name, "vkGetDeviceProcAddr")) return replaced(name, function);
  device_function = (Getter)function;
  return (Function)get_device_function;
}

Function vk_icdGetPhysicalDeviceProcAddr(void *instance, const char *name) {
  return ((Getter)symbol("vk_icdGetPhysicalDeviceProcAddr"))(instance, name);
}

int vk_icdNegotiateLoaderICDInterfaceVersion(unsigned *version) {
  return ((int (*)(unsigned *))symbol("vk_icdNegotiateLoaderICDInterfaceVersion"))(version);
}
