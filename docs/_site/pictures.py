"""The pictures at the top of README, from results/: loops of three policies, and curves next to the authors' runs.

python docs/_site/pictures.py --authors PATH/results/drq.csv    # of a checkout of the authors' repository
"""

import argparse
import subprocess
from pathlib import Path

import imageio_ffmpeg

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "docs" / "assets"
LOOPS = {
    "policy-1.gif": ("walker-run", 6.0),
    "policy-2.gif": ("humanoid-walk", 17.6),
    "policy-3.gif": ("hopper-v4", 3.0),
}
"""File, policy, and the second of its video at which the loop begins."""
CURVES = ("walker-run", "cheetah-run", "humanoid-walk", "hopper-v4")
SECONDS, FRAMES_PER_SECOND, PIXELS = 3.0, 14, 224


def loop(policy: str, start: float, out: Path) -> None:
    """A part of a policy's video as a GIF."""
    filters = (
        f"fps={FRAMES_PER_SECOND},scale={PIXELS}:{PIXELS}:flags=lanczos,split[a][b];"
        "[a]palettegen=max_colors=96[p];[b][p]paletteuse=dither=bayer:bayer_scale=4:diff_mode=rectangle"
    )
    video = ROOT / "results" / "policies" / policy / "video.mp4"
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "error", "-y", "-ss", str(start), "-t", str(SECONDS)]
    subprocess.run([*command, "-i", str(video), "-filter_complex", filters, str(out)], check=True)


def curves(authors: Path, out: Path) -> None:
    """Four tasks, ours and the authors' runs."""
    from dr_q.cli import main

    runs = [str(ROOT / "results" / "runs" / name) for name in CURVES]
    if code := main(["plot", *runs, "--reference", str(authors), "--out", str(out)]):
        raise SystemExit(code)


def main() -> None:
    """Make them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--authors", type=Path, help="the authors' results/drq.csv; without it no curves are drawn")
    authors = parser.parse_args().authors
    for name, (policy, start) in LOOPS.items():
        loop(policy, start, ASSETS / name)
    if authors is not None:
        curves(authors, ASSETS / "curves.png")
    for file in sorted(ASSETS.iterdir()):
        print(f"{file.name}: {file.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
