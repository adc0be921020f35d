// Folders of runs that were never trained, for tests of their pages.
#pragma once
#include <filesystem>
#include <string>

#include "base/json.h"
#include "tests/files.h"
#include "tests/temporary_folder.h"

namespace bv::test {

// A name that would run as a script if it weren't escaped.
inline const std::string hostile = "</script><script>alert(1)</script>\"'&";

// A report.json with that name in every possible place.
inline Json facts_with_hostile_names() {
  const char* picture =
      "data:image/"
      "png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ"
      "/pLvAAAAAElFTkSuQmCC";
  return {{"version", 1},
          {"model", "vit_tiny"},
          {"data", hostile},
          {"device", "cpu"},
          {"command", "./launcher vit_tiny --data '" + hostile + "'"},
          {"written", "2026-11-21 12:00 UTC"},
          {"ending", "step 3: " + hostile},
          {"parameters", 1000},
          {"processes", 2},
          {"updates_per_epoch", 2},
          {"steps_end", 4},
          {"forward_nodes", 2},
          {"classes", {hostile, "dog"}},
          {"memory", Json::array({Json::array({"weights", 4000})})},
          {"seconds", Json::array({Json::array({hostile, 1.5})})},
          {"scratch", Json::array({Json::array({hostile, 0, 256, 0, 1})})},
          {"evaluated",
           {{"step", 2},
            {"epoch", 1},
            {"averaged", false},
            {"images", Json::array({Json::array({0, 0, 3}), Json::array({1, 0, 1})})},
            {"mistakes", Json::array({Json::array({hostile, 1, 0, 0.75, picture})})}}},
          {"best", nullptr},
          {"training_pictures", Json::array({picture})}};
}

// A run of two steps in one epoch, the second with a loss that isn't finite.
inline void write_run(const std::filesystem::path& folder, const Json& facts) {
  std::filesystem::create_directories(folder);
  write_text(folder / "config.json",
             R"({"model": "vit_tiny", "data": "/photos/<i>", "lr": 0.001, "precision": "fp32",)"
             R"( "device": "cpu", "classes": ["a"]})");
  write_text(folder / "metrics.jsonl",
             R"({"kind":"step","epoch":1,"step":1,"loss":2.5,"lr":0.001,"loss_scale":1})"
             "\n"
             R"({"kind":"step","epoch":1,"step":2,"loss":null,"lr":0.001,"loss_scale":1})"
             "\n"
             R"({"kind":"epoch","epoch":1,"step":2,"train_loss":2.0,"val_loss":1.5,)"
             R"("val_top1":0.25,"lr":0.001,"images_per_second":80,"seconds":3,)"
             R"("eval_seconds":1.25,"save_seconds":0.5,"peak_memory_bytes":314572800,)"
             R"("host_peak_memory_bytes":524288000,"device_memory_bytes":1073741824,)"
             R"("device_peak_memory_bytes":326107136})"
             "\n");
  write_text(folder / "report.json", to_line(facts));
}

}  // namespace bv::test
