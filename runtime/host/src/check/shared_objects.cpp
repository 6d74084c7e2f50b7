// The symbol table of a library; the system's loader does not map it.
#include "shared_objects.h"

#include <cxxabi.h>
#include <elf.h>
#include <fstream>
#include <iterator>
#include <stdint.h>
#include <stdlib.h>

namespace baracuda_host {

// "float baracuda::reduce_row<...>(float, int&)::scratch" is called scratch.
static std::string short_name(const char* symbol) {
  int status = 0;
  char* text = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  std::string name = status == 0 ? text : symbol;
  free(text);
  const size_t scope = name.rfind("::");
  if (scope != std::string::npos) name = name.substr(scope + 2);
  return name.substr(0, name.find_first_of(" .["));
}

static bool is_kernels(const std::string& name) {
  return name != "anchor" && name.rfind("baracuda_host_gap_", 0) != 0 && name.rfind("guard variable", 0) != 0;
}

std::vector<SharedObject> shared_objects_of(const char* library) {
  std::ifstream file(library, std::ios::binary);
  const std::vector<char> data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<SharedObject> found;
  if (data.size() < sizeof(Elf64_Ehdr)) return found;
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(data.data());
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(data.data() + header->e_shoff);
  for (int i = 0; i < header->e_shnum; i++) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(data.data() + sections[i].sh_offset);
    const char* names = data.data() + sections[sections[i].sh_link].sh_offset;
    for (size_t s = 0; s < sections[i].sh_size / sizeof(Elf64_Sym); s++) {
      if (ELF64_ST_TYPE(symbols[s].st_info) != STT_TLS || symbols[s].st_shndx == SHN_UNDEF) continue;
      const std::string name = short_name(names + symbols[s].st_name);
      if (is_kernels(name)) found.push_back({name, symbols[s].st_value, symbols[s].st_size});
    }
  }
  return found;
}

}  // namespace baracuda_host
